"""The snapshotter: copies queued tables to `raw.snapshot_rows`, chunk by chunk, on Spark's executors."""
