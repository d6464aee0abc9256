"""Snapshots of collections: chunks by `_id` range, read at one cluster time."""
