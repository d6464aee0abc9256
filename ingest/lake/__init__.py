"""The lake's raw tables: all reads and writes of the ingest jobs.

One `Lake` per job; its methods may be called from several threads. Sources create rows, the lake
commits them.
"""

from ingest.lake.chunk_table import Chunk, ChunkTable
from ingest.lake.lake import Lake
from ingest.lake.parquet_files import DataFile, Folder, Sink
from ingest.lake.source_tables import SourceTable, SourceTables

__all__ = ["Chunk", "ChunkTable", "DataFile", "Folder", "Lake", "Sink", "SourceTable", "SourceTables"]
