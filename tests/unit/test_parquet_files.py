"""Parquet files that are written in the background."""

import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ingest.lake.parquet_files import BackgroundSink, Folder

SCHEMA = pa.schema([("n", pa.int64())])


def test_row_groups_keep_their_order(tmp_path: Path) -> None:
    sink = BackgroundSink(Folder(str(tmp_path)), SCHEMA)
    for start in range(0, 100, 10):
        sink.write(pa.table({"n": range(start, start + 10)}))
    file = sink.close().result()
    parquet_file = pq.ParquetFile(file.path)
    assert (file.rows, parquet_file.num_row_groups) == (100, 10)
    assert parquet_file.read()["n"].to_pylist() == list(range(100))


@pytest.mark.parametrize("again", ["write", "close"])
def test_an_error_of_a_row_group_is_raised_by_the_next_call(tmp_path: Path, again: str) -> None:
    sink = BackgroundSink(Folder(str(tmp_path)), SCHEMA)
    sink.write(pa.table({"another": [1]}))
    with pytest.raises(ValueError, match="names"):
        sink.write(pa.table({"n": [1]})) if again == "write" else sink.close().result()
    sink.discard()
    assert not list(tmp_path.iterdir())


def test_only_empty_old_commit_folders_are_removed(tmp_path: Path) -> None:
    root = Folder(str(tmp_path))
    old = [root.subfolder(f"l{time.time_ns() - 7200 * 10**9 + n:x}") for n in range(3)]
    young, other = root.new_subfolder(), root.subfolder("letters")
    for folder in (*old, young, other):
        folder.open()
    (Path(old[0].root) / "part.parquet").touch()
    assert root.remove_empty(3600) == 2
    assert {str(path) for path in tmp_path.iterdir()} == {old[0].root, young.root, other.root}
    assert root.remove_empty(0) == 1
    assert not Path(young.root).exists()


@pytest.mark.parametrize("root", ["s3://bucket/raw/wal_events/data", "/of/no/table/data"])
def test_a_lake_without_folders_is_accepted(root: str) -> None:
    assert Folder(root).remove_empty(0) == 0
