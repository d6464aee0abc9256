"""Parquet files of the raw tables, written by pyarrow in the process that has the Arrow data.

`Folder` is a table's data location; `Sink` is one file that is written row group by row group, so that
memory holds one row group, whatever the size of the batch (`BackgroundSink`: two). A file does not belong
to the table until it is committed; a discarded file is removed.
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

# Spark's schemes of S3; pyarrow only accepts s3.
_SCHEMES = {"s3a": "s3", "s3n": "s3"}
_STATISTICS = ("source", "writer", "commit_lsn", "table_id", "snapshot_id", "chunk", "attempt")
# Names that `Folder.new_subfolder` makes: `l` and the time, ns since the epoch, in hexadecimal.
_NEW_FOLDER = re.compile("l[0-9a-f]{12,16}")
# Columns with repeated values; for others a dictionary would be built and dropped.
_REPEATED = {
    *("source", "writer", "op", "table_name", "table_id"),
    *("partition_id", "snapshot_id", "chunk", "attempt", "snapshot_lsn", "read_lsn", "ingested_at"),
}
_NAMES = ["columns.key_value.key"]


@dataclass(frozen=True)
class DataFile:
    """A finished file: path for Iceberg, number of rows, size in bytes."""

    path: str
    rows: int
    size: int

    def remove(self) -> None:
        """Removes the file, which must not be committed."""
        folder, _, name = self.path.rpartition("/")
        system, base = Folder(folder).open()
        system.delete_file(f"{base}/{name}")


@dataclass(frozen=True)
class Folder:
    """A table's data location: `root` as Iceberg writes it, such as `s3://bucket/raw/wal_events/data`.

    Has no open handles, so it can be sent to an executor. largest_row: the maximum size of a row in bytes (see
    `row_size_limit`); None: unlimited.
    """

    root: str
    largest_row: int | None = None

    def subfolder(self, name: str) -> "Folder":
        """The subfolder `name`."""
        return Folder(f"{self.root}/{name}", self.largest_row)

    def new_subfolder(self) -> "Folder":
        """A subfolder with a unique name made from the time."""
        return self.subfolder(f"l{time.time_ns():x}")

    def open(self) -> tuple[fs.FileSystem, str]:
        """The file system and the folder's path in it; creates the folder if it is missing."""
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
        """Removes empty subfolders that `new_subfolder` made more than `seconds` ago; returns their number.

        Only on a local file system, which removes a folder only if the folder is empty. An object store has no folders.
        """
        if "://" in self.root or not Path(self.root).is_dir():
            return 0
        before = time.time_ns() - int(seconds * 1e9)
        made = [path for path in Path(self.root).iterdir() if _NEW_FOLDER.fullmatch(path.name)]
        old = [path for path in made if int(path.name[1:], 16) < before]
        return sum(map(_remove_if_empty, old))


def _remove_if_empty(folder: Path) -> bool:
    """Removes a folder if it is empty; returns whether it was."""
    with suppress(OSError):
        folder.rmdir()
        return True
    return False


class Sink:
    """One Parquet file that is being written."""

    def __init__(self, folder: Folder, schema: pa.Schema, name: str | None = None) -> None:
        """name: the file's name (None: a unique one)."""
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
        """Writes `rows` as one row group. Raises Failure for a row that is too large."""
        if rows.num_rows:
            if self._largest_row is not None:
                row_size_limit.check_row_sizes(rows, self._largest_row)
            self._writer.write_table(rows.cast(self._schema), row_group_size=rows.num_rows)
            self.rows += rows.num_rows

    def close(self) -> DataFile:
        """The finished file."""
        self._writer.close()
        return DataFile(self.path, self.rows, self._system.get_file_info(self._inner).size)

    def discard(self) -> None:
        """Removes the file, whatever its state."""
        with suppress(Exception):
            self._writer.close()
        self._remove()

    def _remove(self) -> None:
        with suppress(Exception):
            self._system.delete_file(self._inner)


def write_file(folder: Folder, rows: pa.Table) -> DataFile:
    """Writes `rows` as one file in `folder`."""
    sink = Sink(folder, rows.schema)
    try:
        sink.write(rows)
        return sink.close()
    except BaseException:
        sink.discard()
        raise


class BackgroundSink:
    """A `Sink` whose row groups are written by a separate thread, while the caller makes the next.

    An error of a row group is raised by the next `write`, and by the result of `close`.
    """

    def __init__(self, folder: Folder, schema: pa.Schema) -> None:
        self._sink = Sink(folder, schema)
        self._thread = ThreadPoolExecutor(1, "parquet")
        self._written: Future[None] | None = None

    def write(self, rows: pa.Table) -> None:
        """See `Sink`. Waits until the previous row group is written."""
        if self._written is not None:
            self._written.result()
        self._written = self._thread.submit(self._sink.write, rows)

    def close(self) -> "Future[DataFile]":
        """The finished file, when all row groups are written. Does not wait for them."""
        file = self._thread.submit(self._close, self._written)
        self._thread.shutdown(wait=False)
        return file

    def discard(self) -> None:
        """See `Sink`. Waits for the thread."""
        self._thread.shutdown()
        self._sink.discard()

    def _close(self, written: "Future[None] | None") -> DataFile:
        if written is not None:
            written.result()
        return self._sink.close()
