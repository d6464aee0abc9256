"""Faults inserted into a copy of the project, one at a time, to check that a test of `make test` detects each."""
