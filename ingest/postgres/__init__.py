"""Postgres as a source: catalogue, slots, the stream's and the snapshots' decoders and readers."""
