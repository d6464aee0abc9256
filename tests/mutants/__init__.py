"""Faults put into a copy of the project one at a time, to see that a test of `make test` notices each."""
