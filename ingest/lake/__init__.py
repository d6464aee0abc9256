"""The lake's raw tables: all reads and writes of the ingest jobs.

One `Lake` per job; its methods may be called from several threads. Sources create rows, the lake
commits them.
"""

from ingest.lake.lake import Lake
from ingest.lake.parquet_files import DataFile, Folder, Sink
from ingest.lake.snapshot_chunks import Chunk, SnapshotChunks
from ingest.lake.source_tables import SourceTable, SourceTables

__all__ = ["Chunk", "DataFile", "Folder", "Lake", "Sink", "SnapshotChunks", "SourceTable", "SourceTables"]
