"""Staging views: their names, their files, and a trial of each on Spark."""
