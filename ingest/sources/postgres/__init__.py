"""Postgres as a source."""
