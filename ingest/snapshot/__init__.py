"""The snapshotter: plans a table's chunks, claims them, reads them on Spark's executors, marks the table complete."""
