"""MongoDB as a source: change streams and snapshots of collections, as the records of `ingest.change`."""
