"""The raw tables: atomic commits, one winner per claim, bounded metadata, migration of old lakes."""

import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from ingest.common.records import EVENTS as EVENTS_SCHEMA
from ingest.lake import Chunk, Lake, Sink, SourceTable, raw_schema
from ingest.lake import lake as lake_module
from ingest.lake.iceberg_commit import Committer
from ingest.lake.lease_renewal import Lease
from ingest.lake.raw_schema import CHUNKS, EVENTS, POSITIONS
from ingest.lake.snapshot_chunks import ChunkStats
from ingest.lake.sorted_rows import ROWS_AT_ONCE, iter_sorted
from ingest.lake.source_tables import DONE, QUEUED, RUNNING, Column, Partition
from ingest.lake.sql_literals import literal
from ingest.positions.position import Position


@pytest.fixture
def name() -> str:
    return f"s{uuid.uuid4().hex[:12]}"


def events(source: str, count: int) -> pa.Table:
    row: dict[str, Any] = dict.fromkeys(EVENTS_SCHEMA.names)
    now = datetime.now(timezone.utc)
    rows = [
        {
            **row,
            "source": source,
            "writer": 1,
            "commit_lsn": 10,
            "commit_index": n,
            "op": "insert",
            "columns": [("a", None), ("b", "ä")],
            "commit_ts": now,
            "is_partial": False,
        }
        for n in range(count)
    ]
    return pa.Table.from_pylist(rows, schema=EVENTS_SCHEMA)


def count(lake: Lake, table: str, source: str) -> int:
    query = f"SELECT count(*) FROM {table} WHERE source = '{source}'"
    return int(lake.spark.sql(query).collect()[0][0])


def snapshots(lake: Lake, table: str) -> int:
    return int(lake.spark.sql(f"SELECT count(*) FROM {table}.snapshots").collect()[0][0])


def test_no_checksum_file_is_written_beside_a_file(lake: Lake, name: str, lake_folder: Path) -> None:
    lake.positions.store(Position(name, 1, "slot", "1", 1, 10, 20))
    files = [path for path in lake_folder.rglob("*") if path.is_file()]
    assert any(path.suffix == ".parquet" for path in files)
    assert not [path for path in files if path.suffix == ".crc"]


def test_files_and_tasks_do_not_carry_the_settings_of_yarn(spark: SparkSession) -> None:
    settings = spark._jsparkSession.sessionState().newHadoopConf()
    assert settings.getPropsWithPrefix("yarn.").size() == 0
    assert settings.get("fs.defaultFS") == "file:///"


@pytest.mark.parametrize("procedures", [False, True])
def test_many_files_are_one_commit(lake: Lake, name: str, procedures: bool) -> None:
    committer = Committer(lake.spark, procedures=procedures)
    folder = lake.commit_folder(EVENTS)
    files = []
    for _ in range(3):
        sink = Sink(folder, EVENTS_SCHEMA)
        sink.write(events(name, 4))
        sink.write(events(name, 1))
        files.append(sink.close())
    before = snapshots(lake, EVENTS)
    committer.add(EVENTS, [file.path for file in files])
    assert snapshots(lake, EVENTS) == before + 1
    assert count(lake, EVENTS, name) == 15
    rows = lake.spark.sql(f"SELECT columns, is_partial, row_key FROM {EVENTS} WHERE source = '{name}'")
    assert {(*row.columns.items(), row.is_partial, row.row_key) for row in rows.collect()} == {
        (("a", None), ("b", "ä"), False, None)
    }


def test_a_discarded_file_is_deleted(lake: Lake) -> None:
    folder = lake.commit_folder(EVENTS)
    sink = Sink(folder, EVENTS_SCHEMA)
    sink.write(events("discarded", 1))
    sink.discard()
    system, path = folder.open()
    assert system.get_file_info(f"{path}/{sink.path.rpartition('/')[2]}").type.name == "NotFound"


def test_only_columns_used_in_filters_have_statistics(lake: Lake, name: str) -> None:
    lake.append(EVENTS, events(name, 3))
    query = f"""SELECT readable_metrics.commit_lsn.lower_bound AS lsn, readable_metrics.row_key.value_count
        FROM {EVENTS}.files WHERE readable_metrics.source.lower_bound = '{name}'"""
    assert [tuple(row) for row in lake.spark.sql(query).collect()] == [(10, None)]


@pytest.mark.parametrize("procedures", [False, True])
def test_concurrent_commits_are_all_kept(lake: Lake, name: str, procedures: bool) -> None:
    lakes = [Lake(lake.spark, Committer(lake.spark, procedures=procedures)) for _ in range(3)]

    def append_event(concurrent_lake: Lake) -> None:
        for _ in range(4):
            concurrent_lake.append(EVENTS, events(name, 1))

    in_threads([partial(append_event, one) for one in lakes])
    assert count(lake, EVENTS, name) == 12


def in_threads(work: list[Callable[[], object]]) -> None:
    """Runs all at once; raises the first error."""
    barrier = threading.Barrier(len(work))
    errors: list[BaseException] = []

    def run(task: Callable[[], object]) -> None:
        try:
            barrier.wait()
            task()
        except BaseException as error:  # noqa: BLE001  # raised by the test's own thread
            errors.append(error)

    threads = [threading.Thread(target=run, args=[task]) for task in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


# Positions


def test_the_maximum_position_is_read_and_superseded_ones_are_pruned(
    lake: Lake, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Position(name, 1, "slot", "7", 1, 100, 100)
    second = replace(first, start_position=500, position=500)
    for position in (100, 120, 110):
        lake.positions.store(replace(first, position=position))
    for position in (500, 510):
        lake.positions.store(replace(second, position=position))
    lake.positions.store(replace(second, position=510, token="newest"))
    expected = [replace(first, position=120), replace(second, position=510)]
    assert lake.positions.read(name) == expected
    assert [position.token for position in lake.positions.read(name)] == [None, "newest"]
    monkeypatch.setattr(lake_module, "HOUSEKEEPING_POSITIONS", 5)
    lake.run_housekeeping(replace(second, position=510))
    assert lake.positions.read(name) == expected
    assert count(lake, POSITIONS, name) == 5  # the first epoch is unchanged


@pytest.mark.parametrize("procedures", [False, True])
def test_old_iceberg_snapshots_expire(
    spark: SparkSession, name: str, monkeypatch: pytest.MonkeyPatch, procedures: bool
) -> None:
    monkeypatch.setattr(lake_module, "HOUSEKEEPING_COMMITS", 25)
    monkeypatch.setattr(lake_module, "HOUSEKEEPING_POSITIONS", 25)
    monkeypatch.setattr(lake_module, "RAW_SNAPSHOT_RETENTION_SECONDS", 0)
    lake = Lake(spark, Committer(spark, procedures=procedures))
    position = Position(name, 1, "slot", "7", 1, 100, 100)
    for n in range(25):
        lake.positions.store(replace(position, position=100 + n))
        lake.run_housekeeping(replace(position, position=100 + n))
    assert snapshots(lake, POSITIONS) <= 22
    assert count(lake, POSITIONS, name) == 1


def test_a_table_dropped_during_the_expiry_is_skipped(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.spark.sql("create namespace if not exists buckets")
    for table in ("buckets.dropped_meanwhile", "buckets.dropped_meanwhile__ops"):
        lake.spark.sql(f"create table {table} (id int) using iceberg")
    expire = lake.committer.expire_snapshots
    expired: list[str] = []

    def drop_then_expire(table: str, older_than: int, keep: int = 20) -> int:
        lake.spark.sql("drop table if exists buckets.dropped_meanwhile")
        expired.append(table)
        return expire(table, older_than, keep)

    monkeypatch.setattr(lake.committer, "expire_snapshots", drop_then_expire)
    lake.expire_snapshots(3600)
    assert expired[-2:] == ["buckets.dropped_meanwhile", "buckets.dropped_meanwhile__ops"]


@pytest.mark.parametrize("procedures", [False, True])
def test_the_folder_of_a_commit_is_deleted_with_its_files(
    spark: SparkSession, name: str, monkeypatch: pytest.MonkeyPatch, procedures: bool
) -> None:
    monkeypatch.setattr(lake_module, "HOUSEKEEPING_POSITIONS", 3)
    monkeypatch.setattr(lake_module, "EMPTY_FOLDER_SECONDS", 0)
    lake = Lake(spark, Committer(spark, procedures=procedures))
    data = Path(lake.folder(POSITIONS).root)
    position = Position(name, 1, "slot", "7", 1, 100, 100)
    lake.positions.store(position)
    lake.expire_snapshots(0, keep=1)
    lake.remove_empty_folders()
    before = {path for path in data.iterdir() if path.is_dir()}
    for n in range(3):
        lake.positions.store(replace(position, position=100 + n))
    folders = {path for path in data.iterdir() if path.is_dir()} - before
    assert len(folders) == (3 if procedures else 0)
    lake.run_housekeeping(replace(position, position=102))
    lake.positions.store(replace(position, position=103))
    lake.expire_snapshots(0, keep=1)
    assert lake.remove_empty_folders() == (3 if procedures else 0)
    assert lake.positions.read(name) == [replace(position, position=103)]


@pytest.mark.parametrize("procedures", [False, True])
def test_an_iceberg_snapshot_expires_by_the_time_it_was_superseded(
    spark: SparkSession, lake: Lake, procedures: bool
) -> None:
    committer = Committer(spark, procedures=procedures)
    table = f"raw.kept_{procedures}"
    spark.sql(f"CREATE TABLE {table} (n INT) USING iceberg")
    for n in (1, 2):
        spark.sql(f"INSERT INTO {table} VALUES ({n})")
    until_then = round(time.time() * 1000)
    for n in (3, 4):
        spark.sql(f"INSERT INTO {table} VALUES ({n})")
    assert committer.expire_snapshots(table, until_then, keep=1) == 1
    assert snapshots(lake, table) == 3
    assert committer.expire_snapshots(table, round(time.time() * 1000), keep=1) == 2
    assert snapshots(lake, table) == 1
    assert committer.expire_snapshots(table, round(time.time() * 1000), keep=1) == 0
    spark.sql(f"DROP TABLE {table}")


def test_sorted_rows_are_read_in_order_with_bounded_memory(spark: SparkSession) -> None:
    count = 2 * ROWS_AT_ONCE + 1
    rows = spark.range(count).selectExpr("(id * 7919) % 50021 AS a", "id AS b")
    sorted_rows = [(row.a, row.b) for row in iter_sorted(rows, "a", "b")]
    assert sorted_rows == sorted(sorted_rows)
    assert len(sorted_rows) == count


# Tables and chunks


def table(source: str, table_id: str = "t1") -> SourceTable:
    return SourceTable(
        source=source,
        table_id=table_id,
        table_name="public.o\"d'd\\ä",
        relation_id=5,
        replica_identity="d",
        key_columns=("b", "a"),
        columns=(Column("a", 1, "integer"), Column("b", 2, "text")),
        partitions=(Partition(5, "public.odd", 7),),
        published_id=3,
    )


def test_a_table_is_read_as_it_was_written(lake: Lake, name: str) -> None:
    row = table(name)
    counted = replace(row, table_id="t2", key_columns=None, columns=(), partitions=())
    assert lake.tables.upsert(name, [row, counted]) == [row, counted]
    assert lake.tables.read(name) == {"t1": row, "t2": counted}


def test_a_generation_is_registered_once(lake: Lake, name: str) -> None:
    in_threads([lambda: lake.tables.upsert(name, [table(name)])] * 4)
    assert count(lake, raw_schema.SOURCE_TABLES, name) == 1


def test_of_concurrent_changes_of_one_row_one_wins(lake: Lake, name: str) -> None:
    row = table(name)
    lake.tables.upsert(name, [row])
    won: list[SourceTable] = []

    def claim(n: int) -> None:
        won.extend(lake.tables.upsert(name, [row.with_changes(state=RUNNING, snapshot_id=f"s{n}")]))

    in_threads([partial(claim, n) for n in range(4)])
    assert len(won) == 1
    assert lake.tables.read(name) == {"t1": won[0]}


def test_a_change_based_on_an_old_version_fails(lake: Lake, name: str) -> None:
    row = table(name)
    lake.tables.upsert(name, [row])
    (queued,) = lake.tables.upsert(name, [row.with_snapshot_queued("again")])
    assert lake.tables.upsert(name, [row.with_changes(state=DONE, complete_lsn=9)]) == []
    assert lake.tables.read(name) == {"t1": queued}


def chunks(source: str, n: int = 4) -> list[Chunk]:
    return [Chunk(source, "t1", f"{source}-1", i, 5, str(i), str(i + 1)) for i in range(n)]


def test_a_chunk_has_one_claimer(lake: Lake, name: str) -> None:
    planned = chunks(name)
    lake.chunks.insert(planned)
    won: dict[int, list[Chunk]] = {}

    def claim(n: int) -> None:
        won[n] = lake.chunks.claim(planned, f"{name}:{n}", 60)

    in_threads([partial(claim, n) for n in range(4)])
    assert sorted(c.chunk for claims in won.values() for c in claims) == [0, 1, 2, 3]
    now = lake.chunks.read([f"{name}-1"])
    assert all(chunk.attempt == 1 and chunk.state == RUNNING for chunk in now)


def test_a_chunk_taken_over_is_not_finished_by_its_first_worker(lake: Lake, name: str) -> None:
    planned = chunks(name)
    lake.chunks.insert(planned)
    first = lake.chunks.claim(planned, "first", -1)
    now = datetime.now(timezone.utc)
    assert all(chunk.is_claimable(now) for chunk in first)
    second = lake.chunks.claim(first[:2], "second", 60)
    assert [chunk.attempt for chunk in second] == [2, 2]
    assert [c.chunk for c in lake.chunks.mark_done(first, [ChunkStats(n, 100) for n in (1, 2, 3, 4)])] == [2, 3]
    assert [c.row_count for c in lake.chunks.mark_done(second, [ChunkStats(5, 100), ChunkStats(6, 101)])] == [5, 6]
    after = {c.chunk: (c.state, c.attempt, c.row_count) for c in lake.chunks.read([f"{name}-1"])}
    assert after == {0: (DONE, 2, 5), 1: (DONE, 2, 6), 2: (DONE, 1, 3), 3: (DONE, 1, 4)}


def test_a_lease_is_renewed_and_unread_chunks_are_released(lake: Lake, name: str) -> None:
    lake.chunks.insert(chunks(name))
    claimed = lake.chunks.claim(chunks(name), "me", 0.3)
    renewed = threading.Event()
    renew = lake.chunks.renew

    class Watched:
        mark_done, release = lake.chunks.mark_done, lake.chunks.release

        def renew(self, chunks: list[Chunk], seconds: float) -> list[Chunk]:
            kept = renew(chunks, seconds)
            renewed.set()
            return kept

    with Lease(Watched(), claimed, 0.3) as lease:  # type: ignore[arg-type]
        assert renewed.wait(60)
        assert [c.chunk for c in lease.mark_done({(f"{name}-1", 1): ChunkStats(10, 100)})] == [1]
    states = [c.state for c in lake.chunks.read([f"{name}-1"])]
    assert states == [QUEUED, DONE, QUEUED, QUEUED]


# Migration


def test_an_older_lake_gets_the_missing_columns(lake: Lake, name: str) -> None:
    old = table(name)
    lake.tables.upsert(name, [old])
    lake.spark.sql(f"ALTER TABLE {raw_schema.SOURCE_TABLES} DROP COLUMN published_id")
    lake.spark.sql(f"ALTER TABLE {raw_schema.SOURCE_TABLES} DROP COLUMN columns.element.altered")
    lake.spark.sql(f"ALTER TABLE {raw_schema.SOURCE_TABLES} DROP COLUMN partitions.element.attached")
    lake.spark.sql(f"ALTER TABLE {CHUNKS} DROP COLUMN owner")
    newer = Lake(lake.spark)
    assert newer.tables.read(name) == {"t1": replace(old, published_id=None)}
    changes = {"columns": (Column("a", 1, "integer", 9),), "partitions": (Partition(5, "public.odd", 7, "8 9"),)}
    (changed,) = newer.tables.upsert(name, [old.with_changes(published_id=4, **changes)])
    assert newer.tables.read(name) == {"t1": changed}


def test_two_processes_can_create_the_lake_at_once(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have found no schema and no table, and create each at the same time."""
    for table_name in raw_schema.TABLES:
        lake.spark.sql(f"DROP TABLE {table_name}")
    lake.spark.sql("DROP NAMESPACE raw")
    both = threading.Barrier(2, timeout=60)
    waited: set[tuple[Any, ...]] = set()

    def together(work: Callable[..., None]) -> Callable[..., None]:
        def call(*arguments: Any) -> None:
            step = (threading.get_ident(), work, *arguments[1:2])
            if step not in waited:  # A repetition after a conflict has no partner.
                waited.add(step)
                both.wait()
            work(*arguments)

        return call

    for name in ("require_views", "_create"):
        monkeypatch.setattr(raw_schema, name, together(getattr(raw_schema, name)))
    in_threads([partial(raw_schema.ensure_tables, spark) for spark in (lake.spark, lake.spark.newSession())])
    created = {f"raw.{row.tableName}" for row in lake.spark.sql("SHOW TABLES IN raw").collect()}
    assert created == set(raw_schema.TABLES)


@pytest.mark.parametrize(
    "value",
    [None, True, 7, -(2**62), 'it\'s \\ "ä"\n', ["a", None], datetime(2026, 1, 2, 3, tzinfo=timezone.utc)],
)
def test_sql_literals_keep_their_values(spark: SparkSession, value: object) -> None:
    ((timestamp,),) = spark.sql(f"SELECT {literal(value)}").collect()
    if isinstance(value, datetime):
        timestamp = timestamp.astimezone(timezone.utc)
    assert timestamp == value
