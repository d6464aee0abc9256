"""The lake's raw tables: everything that the ingest jobs read of them and write to them.

One `Lake` per job; its methods may be called from several threads. Sources make rows, the lake
lands them.
"""

from ingest.lake.chunk_table import Chunk, ChunkTable
from ingest.lake.lake import Lake
from ingest.lake.parquet_files import File, Folder, Sink
from ingest.lake.source_tables import SourceTable, SourceTables

__all__ = ["Chunk", "ChunkTable", "File", "Folder", "Lake", "Sink", "SourceTable", "SourceTables"]
