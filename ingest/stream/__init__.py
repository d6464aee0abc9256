"""The stream writer: reads a source's events and commits them to `raw.wal_events` in batches, with their position."""
