"""Shared by all other packages: records, errors, row keys, findings. Imports no other package of Tidemark."""
