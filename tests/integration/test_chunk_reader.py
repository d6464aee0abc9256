"""A chunk is read whole or not at all.

Under a held exported snapshot a rewritten table looks empty: such a chunk is ignored (design rule S9).
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pyarrow.parquet as pq
import pytest

from ingest.snapshot.chunk_task import CHANGED, FAILED, LOCKED, ChunkResult
from ingest.sources.postgres.snapshot import table_chunk_reader
from ingest.sources.postgres.snapshot.table_chunk_reader import ChunkTask, read_chunk
from tests.conftest import Database


def read(
    database: Database, snapshot: str, storage: dict[int, int], folder: Path, largest_row: int | None = None
) -> ChunkResult:
    """Reads the whole table `t`, registered with this storage, under an exported snapshot."""
    ((oid, *_),) = storage.items()
    task = ChunkTask(
        source="shop",
        table_name="public.t",
        table_id="T",
        snapshot_id="S",
        snapshot_lsn=10,
        chunk=0,
        attempt=1,
        relation_id=oid,
        partition_id=oid,
        columns={"id": 1, "n": 2},
        key=("id",),
        row_filter=None,
        lower=0,
        upper=None,
        row_keys=None,
        snapshot=snapshot,
        read_lsn=10,
        storage=storage,
        folder=str(folder),
        largest_row=largest_row,
    )
    return read_chunk(database.dsn, task.pack(), 10.0)


@contextmanager
def exported_snapshot(database: Database) -> Iterator[str]:
    """The name of an exported snapshot, which is held while the context is open."""
    with psycopg.connect(database.dsn) as holder:
        holder.execute("set transaction isolation level repeatable read")
        ((snapshot,),) = holder.execute("select pg_export_snapshot()").fetchall()
        yield snapshot


def read_storage(database: Database) -> dict[int, int]:
    """The storage of the table `t` as it is registered: relfilenode by oid."""
    return dict(database.execute("select oid::bigint, relfilenode::bigint from pg_class where relname = 't'"))


@pytest.mark.parametrize("rewrite", ["vacuum full t", "alter table t alter n type bigint", "cluster t using t_pkey"])
def test_a_chunk_of_a_rewritten_table_is_ignored(database: Database, tmp_path: Path, rewrite: str) -> None:
    database.execute(
        "create table t (id int primary key, n int); insert into t select i, i from generate_series(1, 9) i"
    )
    storage = read_storage(database)
    with exported_snapshot(database) as snapshot:
        before = read(database, snapshot, storage, tmp_path)
        assert (before.problem, before.rows) == (None, 9)
        assert pq.read_table(before.path).num_rows == 9
        database.execute(rewrite)
        after = read(database, snapshot, storage, tmp_path)
    assert after.problem == CHANGED
    assert "the storage of relation" in str(after.detail)


def test_a_chunk_is_not_read_from_another_table_of_its_name(database: Database, tmp_path: Path) -> None:
    database.execute("create table t (id int primary key, n int); insert into t values (1, 1)")
    storage = read_storage(database)
    with exported_snapshot(database) as snapshot:
        database.execute("alter table t rename to t_old; create table t (id int primary key, n int)")
        chunk = read(database, snapshot, storage, tmp_path)
    assert (chunk.problem, chunk.path) == (CHANGED, None)
    assert chunk.detail == "public.t was renamed"


def test_a_chunk_of_a_locked_table_is_read_later(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.execute("create table t (id int primary key, n int); insert into t values (1, 1)")
    storage = read_storage(database)
    monkeypatch.setattr(table_chunk_reader, "LOCK_TIMEOUT", "50ms")
    with exported_snapshot(database) as snapshot, psycopg.connect(database.dsn) as other:
        other.execute("lock table t in access exclusive mode")
        assert read(database, snapshot, storage, tmp_path).problem == LOCKED
        other.rollback()
        assert read(database, snapshot, storage, tmp_path).rows == 1


def test_a_chunk_with_too_large_a_row_fails_at_once(database: Database, tmp_path: Path) -> None:
    # If libpq read the rest of the rows, it would take these for the head of a message of a gigabyte, and wait for it.
    database.execute(
        "create table t (id int primary key, n text);"
        "insert into t select i, repeat('DEVANT ', case i when 100 then 1000000 else 100 end) "
        "from generate_series(1, 50000) i"
    )
    storage = read_storage(database)
    with exported_snapshot(database) as snapshot, ThreadPoolExecutor(1) as pool:
        chunk = pool.submit(read, database, snapshot, storage, tmp_path, 1 << 20)
        try:
            result = chunk.result(timeout=60)
        finally:
            database.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity "
                "where application_name = 'tidemark' and datname = current_database()"
            )
    assert result.problem == FAILED
    assert "a row of 7 MiB is larger" in str(result.detail)
    assert not list(tmp_path.iterdir())
