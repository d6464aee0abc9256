"""Snapshots of Postgres tables: chunks by block range, read by COPY under an exported snapshot."""
