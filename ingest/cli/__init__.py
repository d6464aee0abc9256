"""The `tidemark` command line: a module per command, and what they share."""
