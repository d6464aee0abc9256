"""Parquet files for a raw table, written by pyarrow where the Arrow data is, to where the table
keeps its data.

`Folder` is the place of one table; `Sink` one file that grows batch by batch, so that memory holds
one row group however large the landing (`BackgroundSink`: two). A file is nobody's until it is
committed; one that is given up is removed.
"""

import re
import time
import uuid
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from ingest.lake import row_size_limit

# Spark names S3 its own way, pyarrow knows but one.
_SCHEMES = {"s3a": "s3", "s3n": "s3"}
_STATISTICS = ("source", "writer", "commit_lsn", "table_id", "snapshot_id", "chunk", "attempt")
# What `Folder.new` makes: `l` and the time, ns since the epoch, in hexadecimal.
_NEW_FOLDER = re.compile("l[0-9a-f]{12,16}")
# Values that come again and again; for others a dictionary is built only to be thrown away.
_REPEATED = {
    *("source", "writer", "op", "table_name", "table_id"),
    *("partition_id", "snapshot_id", "chunk", "attempt", "snapshot_lsn", "read_lsn", "ingested_at"),
}
_NAMES = ["columns.key_value.key"]


@dataclass(frozen=True)
class File:
    """A finished file: path as Iceberg is to know it, rows, bytes."""

    path: str
    rows: int
    size: int

    def remove(self) -> None:
        """Removes it: nobody's, as long as it is not committed."""
        folder, _, name = self.path.rpartition("/")
        system, base = Folder(folder).open()
        system.delete_file(f"{base}/{name}")


@dataclass(frozen=True)
class Folder:
    """Where a table's data is: `root` as Iceberg writes it, such as
    `s3://bucket/raw/wal_events/data`.

    Small and free of handles, so that it can be sent to an executor. largest_row: the size of the largest row that a
    file in it may have, in bytes (see `rowbound`).
    """

    root: str
    largest_row: int | None = None

    def beneath(self, name: str) -> "Folder":
        """A folder in this one."""
        return Folder(f"{self.root}/{name}", self.largest_row)

    def new(self) -> "Folder":
        """A folder in this one that no other writer uses; named by the time."""
        return self.beneath(f"l{time.time_ns():x}")

    def open(self) -> tuple[fs.FileSystem, str]:
        """The file system and the folder's path in it, made if it isn't there."""
        scheme, separator, rest = self.root.partition("://")
        uri = f"{_SCHEMES.get(scheme, scheme)}://{rest}" if separator else self.root
        system, path = fs.FileSystem.from_uri(uri)
        system.create_dir(path, recursive=True)
        return system, path

    def remove(self) -> None:
        """Removes the folder and its content."""
        system, path = self.open()
        system.delete_dir(path)

    def remove_empty(self, seconds: float) -> int:
        """Removes the empty folders that `new` made here more than `seconds` ago; gives their number.

        Only on a local file system, which removes a folder only if the folder is empty. An object store has no folders.
        """
        if "://" in self.root or not Path(self.root).is_dir():
            return 0
        before = time.time_ns() - int(seconds * 1e9)
        made = [path for path in Path(self.root).iterdir() if _NEW_FOLDER.fullmatch(path.name)]
        old = [path for path in made if int(path.name[1:], 16) < before]
        return sum(map(_removed, old))


def _removed(folder: Path) -> bool:
    """Removes a folder if it is empty; whether it was."""
    with suppress(OSError):
        folder.rmdir()
        return True
    return False


class Sink:
    """One Parquet file being written in a folder of its own beneath a table's."""

    def __init__(self, folder: Folder, schema: pa.Schema, name: str | None = None) -> None:
        """name: the file's, where it has to be known beforehand."""
        self._system, base = folder.open()
        name = name or f"{uuid.uuid4().hex}.parquet"
        self._inner = f"{base}/{name}"
        self.path = f"{folder.root}/{name}"
        self.rows = 0
        self._schema = schema
        self._largest_row = folder.largest_row
        try:
            self._writer = pq.ParquetWriter(
                self._inner,
                schema,
                filesystem=self._system,
                compression="zstd",
                write_statistics=[name for name in schema.names if name in _STATISTICS],
                use_dictionary=[name for name in schema.names if name in _REPEATED] + _NAMES,
            )
        except BaseException:
            self._remove()
            raise

    def write(self, rows: pa.Table) -> None:
        """`rows` as one row group. Raises Failure for a row that is too large."""
        if rows.num_rows:
            if self._largest_row is not None:
                row_size_limit.check(rows, self._largest_row)
            self._writer.write_table(rows.cast(self._schema), row_group_size=rows.num_rows)
            self.rows += rows.num_rows

    def close(self) -> File:
        """The finished file."""
        self._writer.close()
        return File(self.path, self.rows, self._system.get_file_info(self._inner).size)

    def abandon(self) -> None:
        """Gives the file up and removes it, whatever its state."""
        with suppress(Exception):
            self._writer.close()
        self._remove()

    def _remove(self) -> None:
        with suppress(Exception):
            self._system.delete_file(self._inner)


def written(folder: Folder, rows: pa.Table) -> File:
    """`rows` as a file of their own in `folder`."""
    sink = Sink(folder, rows.schema)
    try:
        sink.write(rows)
        return sink.close()
    except BaseException:
        sink.abandon()
        raise


class BackgroundSink:
    """A `Sink` that a thread of its own writes: one row group, while the caller makes the next.

    What went wrong with a row group is raised by the call after it.
    """

    def __init__(self, folder: Folder, schema: pa.Schema) -> None:
        self._sink = Sink(folder, schema)
        self._thread = ThreadPoolExecutor(1, "parquet")
        self._written: Future[None] | None = None

    def write(self, rows: pa.Table) -> None:
        """See `Sink`. Waits for the row group before."""
        self._wait()
        self._written = self._thread.submit(self._sink.write, rows)

    def close(self) -> File:
        """See `Sink`."""
        self._wait()
        self._thread.shutdown()
        return self._sink.close()

    def abandon(self) -> None:
        """See `Sink`."""
        self._thread.shutdown()
        self._sink.abandon()

    def _wait(self) -> None:
        if self._written is not None:
            self._written.result()
