"""The replication connection: its socket, the thread that reads it, and the feed of the stream writer."""
