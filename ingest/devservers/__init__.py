"""Postgres and MongoDB servers from installed binaries, for the demo and the tests."""
