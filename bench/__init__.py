"""Benchmarks of Tidemark against its alternatives: `make bench`; see README.md."""
