"""MongoDB as a source: change streams and snapshots of collections."""
