"""The stream writer: batches of a source's events are committed to `raw.wal_events`, position by position."""
