"""Staging views: their names, their files, and a test of each view on Spark."""
