"""Maintenance: the lake shrinks; readers and the next run see no difference."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ingest.commands import op_log
from ingest.commands.tail import follow
from ingest.common.errors import Failure, UsageError
from ingest.config.job_settings import JobSettings
from ingest.config.sources_file import PostgresSource
from ingest.lake import Lake
from ingest.lake.retention import purge_raw
from ingest.pipeline.maintenance import maintenance_steps, run_maintenance
from ingest.positions.position_token import Token
from ingest.project.dbt_project import ConcurrentPublishError
from ingest.snapshot.snapshotter import SnapshotHooks
from tests.conftest import Database
from tests.harness.bucket_client import BucketClient
from tests.harness.commands import TIDEMARK, run_command, write_sources
from tests.harness.kill_points import Killed, kill, kill_at_statement, run_before_statement
from tests.harness.pipeline import Row, SourcePipeline, sort_rows
from tests.harness.postgres_jobs import PostgresJobs

COLUMNS = {"id": "int", "customer": "int", "total": "int"}


@pytest.fixture
def pipeline(
    lake: Lake, source: PostgresSource, settings: JobSettings, tmp_path: Path, database: Database
) -> SourcePipeline:
    """Orders, and one definition of each kind."""
    database.execute(
        "create table orders (id int primary key, customer int, total int);"
        "insert into orders select i, i % 3, i from generate_series(1, 12) i"
    )
    pipeline = SourcePipeline(lake, source, settings, tmp_path)
    view = pipeline.view("orders", COLUMNS)
    pipeline.definition(
        "by_customer",
        f"select _row_key, id, customer, total from {{{{ rows('{view}') }}}}",
        bucket_by=["customer"],
        object_id="id",
        evaluation="incremental",
    )
    pipeline.definition(
        "sums",
        f"select customer, sum(total) as total from {{{{ ref('{view}') }}}} group by customer",
        bucket_by=[],
        object_id="customer",
        unique_key=["customer"],
    )
    return pipeline


def definitions(pipeline: SourcePipeline) -> tuple[str, str]:
    return f"by_customer_{pipeline.source.name}", f"sums_{pipeline.source.name}"


def compact(pipeline: SourcePipeline, definition: str, share: float = 0.01) -> list[str]:
    return pipeline.project.run_operation(
        "maintenance_step",
        step="compact_log",
        arguments={"model": definition, "log_table": f"buckets.{definition}__ops", "superseded_share": share},
    )


def assert_equal(pipeline: SourcePipeline, database: Database) -> None:
    by_customer, sums = definitions(pipeline)
    assert pipeline.bucket(by_customer, "id, customer, total") == sort_rows(
        database.execute(f"""select '{by_customer}["' || customer || '"]', id, customer, total from orders""")
    )
    assert pipeline.bucket(sums, "customer, total") == sort_rows(
        database.execute(f"select '{sums}[]', customer, sum(total) from orders group by customer")
    )
    for definition in definitions(pipeline):
        assert pipeline.replayed(definition) == pipeline.logged_rows(definition)


def replay_lines(lines: list[str]) -> BucketClient:
    return continue_reading(BucketClient(), lines)


def continue_reading(reader: BucketClient, lines: list[str]) -> BucketClient:
    for line in lines:
        reader.apply(json.loads(line))
    return reader


def read_log(pipeline: SourcePipeline, definition: str, bucket: str, after: int = 0) -> list[str]:
    return list(op_log.read_ops(pipeline.spark, definition, op_log.make_bucket_name(definition, bucket), after))


CHANGES = [
    "update orders set total = 100 where id in (1, 4); delete from orders where id = 7",
    "insert into orders values (7, 1, 70); update orders set total = 1 where id = 1",
]


def test_readers_of_a_compacted_log_reach_the_same_rows_and_checksum(
    pipeline: SourcePipeline, database: Database
) -> None:
    pipeline.sync()
    for change in CHANGES:
        database.execute(change)
        pipeline.sync()
    by_customer, _ = definitions(pipeline)
    head, last = BucketClient(), [(0,)]
    for emptied in (False, True):
        if emptied:
            database.execute("delete from orders where customer = 1")
            pipeline.sync()
        full = read_log(pipeline, by_customer, "1")
        readers = [replay_lines(full[:n]) for n in range(len(full) + 1)]
        head = readers[-1]
        last = pipeline.rows(f"select max(op_id) from buckets.{by_customer}__ops")
        assert len(compact(pipeline, by_customer)) == 1
        compacted = [json.loads(line) for line in read_log(pipeline, by_customer, "1")]
        kinds = [op["op"] for op in compacted]
        assert kinds[0] == "CLEAR"
        assert kinds.count("CLEAR") == 1
        assert kinds.count("PUT") == len(head.rows)
        if emptied:
            assert kinds == ["CLEAR"]
        for op in compacted:
            if op["op"] == "MOVE":
                assert op["op_id"] < op["superseded_by"] <= compacted[-1]["op_id"]
                assert set(op) == {"op_id", "op", "checksum", "superseded_by", "checkpoint_id"}
        for reader in readers:
            begun_in_the_middle = reader.last_op_id < compacted[0]["op_id"]
            lines = read_log(pipeline, by_customer, "1", reader.last_op_id)
            assert ("CLEAR" in "".join(lines)) == begun_in_the_middle
            assert continue_reading(reader, lines) == head
        assert pipeline.rows(f"select max(op_id) from buckets.{by_customer}__ops") == last
        assert compact(pipeline, by_customer) == []  # nothing is left to compact
    database.execute("insert into orders values (40, 1, 1)")
    pipeline.sync()
    (added,) = read_log(pipeline, by_customer, "1", head.last_op_id)
    assert json.loads(added)["op_id"] > last[0][0]
    assert_equal(pipeline, database)


def test_a_reader_gets_an_error_for_missing_ops(pipeline: SourcePipeline, database: Database) -> None:
    pipeline.sync()
    by_customer, _ = definitions(pipeline)
    assert read_log(pipeline, by_customer, "99") == []
    assert not op_log.is_known(pipeline.spark, by_customer, op_log.make_bucket_name(by_customer, "99"))
    assert op_log.is_known(pipeline.spark, by_customer, op_log.make_bucket_name(by_customer, "1"))
    with pytest.raises(UsageError, match="no op log of a definition 'nonsense'"):
        read_log(pipeline, "nonsense", "1")
    with pytest.raises(Failure, match="op 1000 is not in the log, whose last op is 12"):
        read_log(pipeline, by_customer, "1", 1000)


STATEMENTS: dict[str, Callable[[str], bool]] = {
    "before the log": lambda sql: "insert overwrite buckets." in sql,
    "before the manifest": lambda sql: "insert into core.releases" in sql,
    "between manifest and its publication": lambda sql: "fast_forward('lake.core.releases'" in sql,
    "before the log is published": lambda sql: "fast_forward('lake.buckets." in sql,
    "before the watermarks": lambda sql: "insert overwrite core.model_watermarks" in sql,
    "before the branches are dropped": lambda sql: "drop branch" in sql,
}


def test_maintenance_killed_at_any_statement_is_completed_later(pipeline: SourcePipeline, database: Database) -> None:
    pipeline.sync()
    by_customer, _ = definitions(pipeline)
    for number, place in enumerate(STATEMENTS):
        database.execute(f"update orders set total = {number} where id < 5")
        pipeline.sync()
        before = pipeline.replayed(by_customer)
        with pytest.raises(Failure), kill_at_statement(STATEMENTS[place]):
            compact(pipeline, by_customer)
        assert pipeline.replayed(by_customer) == before
        database.execute(f"update orders set total = 100 + {number} where id = 1")
        pipeline.sync()
        assert_equal(pipeline, database)
    (branches,) = pipeline.rows(f"select count(*) from buckets.{by_customer}__ops.refs")
    assert branches == (1,)


def test_of_a_concurrent_run_and_maintenance_the_later_one_fails(pipeline: SourcePipeline, database: Database) -> None:
    pipeline.sync()
    database.execute("update orders set total = 0")
    pipeline.sync()
    by_customer, _ = definitions(pipeline)
    database.execute("update orders set total = 5 where id = 5")
    pipeline.ingest()

    # A run that was in progress.
    with (
        pytest.raises(ConcurrentPublishError),
        run_before_statement("insert into core.releases", lambda: compact(pipeline, by_customer)),
    ):
        pipeline.model()
    assert len(read_log(pipeline, by_customer, "0")) == 5
    pipeline.model()
    assert_equal(pipeline, database)
    # Maintenance that was in progress: a run has written to the log meanwhile.
    database.execute("update orders set total = 6")
    pipeline.sync()
    database.execute("update orders set total = 7 where id = 5")
    pipeline.ingest()
    with run_before_statement("insert overwrite buckets.", pipeline.model):
        compact(pipeline, by_customer)
    assert_equal(pipeline, database)
    assert len(compact(pipeline, by_customer)) == 1
    assert_equal(pipeline, database)


def test_maintenance_as_a_whole_changes_no_visible_rows(pipeline: SourcePipeline, database: Database) -> None:
    pipeline.sync()
    for change in (CHANGES[0], "update orders set total = 2 where id = 1"):
        database.execute(change)
        pipeline.sync()
    by_customer, sums = definitions(pipeline)
    of_source = f"source = '{pipeline.source.name}'"
    seen = [
        f"select * from buckets.{by_customer}",
        f"select * from buckets.{sums}",
        f"select * from core.row_state where {of_source} and not deleted",
        f"select * from core.events where {of_source}",
        f"select bucket, sum(checksum) % 4294967296 from buckets.{by_customer}__ops group by bucket",
        f"select bucket, sum(checksum) % 4294967296 from buckets.{sums}__ops group by bucket",
        f"select model, checkpoint_id, position, definition_hash from core.model_watermarks where {of_source}",
    ]
    before = [pipeline.rows(query) for query in seen]
    eager_settings = pipeline.settings.settings.model_copy(
        update={"retention_seconds": 0, "compaction_threshold": 0.01, "compaction_min_files": 2}
    )
    lines = list(run_maintenance(pipeline.lake, eager_settings, pipeline.project))
    output = "\n".join(lines)
    for table in (f"buckets.{by_customer}__ops: compacted", "tombstones purged", "core.events: files rewritten"):
        assert table in output
    assert [pipeline.rows(query) for query in seen] == before
    tombstones = f"select count(*) from core.row_state where {of_source} and deleted"
    assert pipeline.rows(tombstones) == [(0,)]
    small = "select count(*) from {}.files where content = 0"
    for table in ("core.releases", f"buckets.{by_customer}", f"buckets.{by_customer}__ops"):
        assert pipeline.rows(small.format(table)) == [(1,)], table
    assert pipeline.rows(f"select count(*) from buckets.{by_customer}.delete_files") == [(0,)]
    for table in ("raw.wal_events", "raw.snapshot_rows"):
        assert pipeline.rows(f"select count(*) from {table} where {of_source}") == [(0,)], table
    name = pipeline.source.name
    assert (
        list(follow(pipeline.lake, name, Token(pipeline.lake.sources.read_purged_positions(name)[1]), lambda _: True))
        == []
    )
    assert list(follow(pipeline.lake, name, Token(0), lambda _: True)) == []
    database.execute(
        "insert into orders values (20, 1, 9); update orders set customer = 0; delete from orders where id = 2"
    )
    pipeline.sync()
    assert_equal(pipeline, database)
    with pytest.raises(Failure, match="changes after token s1 were purged"):
        list(follow(pipeline.lake, name, Token(1), lambda _: True))
    # A higher purged position, as after a run with another setting, is kept.
    pipeline.spark.sql(f"update raw.sources set purged = map(1, {1 << 60}, 2, 7L) where {of_source}")
    assert any("before position" in line for line in purge_raw(pipeline.spark, 0))
    assert pipeline.lake.sources.read_purged_positions(name) == {1: 1 << 60, 2: 7}


def test_runs_come_between_the_steps_of_a_maintenance(pipeline: SourcePipeline, database: Database) -> None:
    pipeline.sync()
    database.execute(CHANGES[0])
    pipeline.sync()
    eager_settings = pipeline.settings.settings.model_copy(
        update={"compaction_threshold": 0.01, "compaction_min_files": 2}
    )
    changed: list[str] = []
    for lines in maintenance_steps(pipeline.lake, eager_settings, pipeline.project):
        assert len(lines) <= 1
        changed += lines
        if lines and len(changed) <= 3:
            database.execute(f"update orders set total = {len(changed)} where id = 3; delete from orders where id = 11")
            pipeline.sync()
    by_customer, sums = definitions(pipeline)
    tables = [line.partition(":")[0] for line in changed]
    rewritten = {"core.events", "core.row_state", "core.releases", "raw.wal_events", f"buckets.{by_customer}"}
    assert rewritten | {f"buckets.{sums}__ops"} <= set(tables)
    assert_equal(pipeline, database)


def test_maintenance_skips_a_log_whose_table_was_dropped_manually(pipeline: SourcePipeline, database: Database) -> None:
    pipeline.sync()
    database.execute("update orders set total = 0")
    pipeline.sync()
    by_customer, sums = definitions(pipeline)
    pipeline.spark.sql(f"drop table buckets.{by_customer}")
    lines = list(
        run_maintenance(
            pipeline.lake,
            pipeline.settings.settings.model_copy(update={"compaction_threshold": 0.01}),
            pipeline.project,
        )
    )
    assert f"buckets.{sums}__ops: compacted" in "\n".join(lines)
    pipeline.model()
    assert_equal(pipeline, database)


def test_no_row_is_purged_that_a_reader_may_still_request(
    pipeline: SourcePipeline, database: Database, settings: JobSettings
) -> None:
    pipeline.sync()
    database.execute("delete from orders where id = 1")
    pipeline.sync()
    of_source = f"source = '{pipeline.source.name}'"
    tombstones = f"select count(*) from core.row_state where {of_source} and deleted"
    # Too young.
    pipeline.project.run_operation("maintenance_step", step="purge_tombstones", arguments={"keep_seconds": 3600})
    assert pipeline.rows(tombstones) == [(1,)]
    # A definition that is not past it: its data test fails.
    by_customer, _ = definitions(pipeline)
    test = pipeline.write(
        f"tests/data_tests/none_negative_{pipeline.source.name}.sql",
        f"select * from {{{{ ref('{by_customer}') }}}} where total < 0",
    )
    database.execute("update orders set total = -1 where id = 3; delete from orders where id = 2")
    pipeline.ingest()
    with pytest.raises(Failure, match=test):
        pipeline.model()
    pipeline.project.run_operation("maintenance_step", step="purge_tombstones", arguments={"keep_seconds": 0})
    assert pipeline.rows(f"select row_key from core.row_state where {of_source} and deleted") == [('["2"]',)]
    database.execute("update orders set total = 1 where id = 3")
    pipeline.sync()
    # A snapshot of its table is pending.
    jobs = PostgresJobs(pipeline.lake, pipeline.source, settings)
    jobs.queue("public.orders")
    pipeline.project.run_operation("maintenance_step", step="purge_tombstones", arguments={"keep_seconds": 0})
    assert pipeline.rows(tombstones) == [(1,)]
    logged = f"select count(*) from raw.wal_events where {of_source}"
    before = pipeline.rows(logged)
    list(purge_raw(pipeline.spark, 0))
    assert pipeline.rows(logged) == before
    pipeline.sync()
    pipeline.project.run_operation("maintenance_step", step="purge_tombstones", arguments={"keep_seconds": 0})
    assert pipeline.rows(tombstones) == [(0,)]
    assert_equal(pipeline, database)
    jobs.close()


def published(pipeline: SourcePipeline, last: int) -> list[Row]:
    """The tables as a reader with a pinned release sees them: the newest Iceberg snapshot of each by then."""
    return pipeline.rows(
        "select `table`, max_by(snapshot_id, release_id) from core.releases "
        f"where snapshot_id is not null and release_id <= {last} group by `table`"
    )


def test_superseded_releases_and_checkpoints_are_purged_when_old(pipeline: SourcePipeline, database: Database) -> None:
    by_customer, _ = definitions(pipeline)
    pipeline.sync()
    (last_op,) = pipeline.rows(f"select max(op_id) from buckets.{by_customer}__ops")[0]
    pipeline.spark.sql(f"drop table buckets.{by_customer} purge")
    for total in range(3):
        database.execute(f"update orders set total = {total}")
        pipeline.sync()
    numbers = pipeline.spark.sql("select distinct release_id from core.releases order by 1").collect()
    pinned = numbers[-2].release_id
    moments = [published(pipeline, pinned), published(pipeline, pinned + 1)]
    superseded = f"select count(*) from core.releases where release_id < {pinned}"
    checkpoints = f"select checkpoint_id from core.checkpoints where source = '{pipeline.source.name}'"

    def maintain(seconds: float, snapshots_seconds: float = 0) -> str:
        keep = {"keep_seconds": seconds, "iceberg_snapshot_retention_seconds": snapshots_seconds}
        return "\n".join(pipeline.project.run_operation("maintain", superseded_share=0.01, small_files=10_000, **keep))

    assert "core.releases" not in maintain(3600)
    assert "core.releases" not in maintain(0, 3600)
    pipeline.spark.conf.unset("spark.wap.branch")
    old = f"update core.{{}} set {{}} = date'2020-01-01' where {{}} < {pinned}"
    pipeline.spark.sql(old.format("releases", "published_at", "release_id"))
    assert "superseded rows purged" in maintain(3600)
    # One row per table, and the rows of the dropped tables.
    condition = f"{superseded} and model = '{by_customer}'"
    assert pipeline.rows(condition) == [(4,)]
    assert [published(pipeline, pinned), published(pipeline, pinned + 1)] == moments

    def purge() -> None:
        arguments = {"keep_seconds": 0, "superseded_share": 0.01}
        pipeline.project.run_operation("maintenance_step", step="purge_releases", arguments=arguments)

    database.execute("update orders set total = 9 where id = 5")
    pipeline.ingest()
    with pytest.raises(ConcurrentPublishError), run_before_statement("fast_forward('lake.core.releases'", purge):
        pipeline.model()
    pipeline.model()
    database.execute("update orders set total = 8 where id = 5")
    pipeline.ingest()
    # dbt does not report the cause of its failure if another dbt ran inside of it.
    with pytest.raises(Failure), run_before_statement("merge into core.releases", pipeline.model):
        purge()
    assert "old checkpoints purged" in maintain(0)
    assert len(pipeline.rows(checkpoints)) == 1
    database.execute("update orders set total = 10 where id = 5")
    pipeline.sync()
    assert_equal(pipeline, database)
    assert pipeline.rows(f"select min(op_id) > {last_op} from buckets.{by_customer}__ops") == [(True,)]


def test_branches_of_overtaken_runs_are_dropped(pipeline: SourcePipeline, database: Database) -> None:
    by_customer, _ = definitions(pipeline)

    def count_branches(keep_seconds: float) -> int:
        arguments = {"keep_seconds": keep_seconds, "superseded_share": 1}
        pipeline.project.run_operation("maintenance_step", step="purge_releases", arguments=arguments)
        return len(pipeline.rows("select name from core.releases.refs where name <> 'main'"))

    pipeline.sync()
    database.execute("update orders set total = 7 where id = 1")
    pipeline.sync()
    others = count_branches(0)
    database.execute("update orders set total = 8 where id = 1")
    pipeline.ingest()
    with (
        pytest.raises(ConcurrentPublishError),
        run_before_statement("fast_forward('lake.core.releases'", lambda: compact(pipeline, by_customer)),
    ):
        pipeline.model()
    assert count_branches(3600) == others + 1
    assert count_branches(0) == others
    pipeline.model()
    assert_equal(pipeline, database)


def test_replaced_snapshots_are_purged_once_no_run_can_admit_them(
    pipeline: SourcePipeline, database: Database, settings: JobSettings
) -> None:
    jobs = PostgresJobs(pipeline.lake, pipeline.source, settings)
    name = pipeline.source.name
    tables = ("raw.snapshot_rows", "raw.snapshot_chunks")

    def snapshots() -> list[set[str]]:
        """The snapshots that have rows, and the snapshots that have chunks."""
        query = "select distinct snapshot_id from {} where source = '{}'"
        return [{row[0] for row in pipeline.rows(query.format(table, name))} for table in tables]

    def complete_snapshot() -> str:
        jobs.settle()
        return str(jobs.table("public.orders").snapshot_id)

    def take_new_snapshot() -> None:
        jobs.queue("public.orders")

    def set_old(*changed: str) -> None:
        for table in changed:
            pipeline.spark.sql(f"update {table} set updated_at = date'2020-01-01' where source = '{name}'")

    def purge(keep_seconds: float) -> list[set[str]]:
        list(purge_raw(pipeline.spark, keep_seconds))
        return snapshots()

    pipeline.sync()
    database.execute("update orders set total = 100")
    take_new_snapshot()
    first_snapshot = complete_snapshot()
    take_new_snapshot()
    running = complete_snapshot()
    # A run decides for this snapshot, but no run has admitted it yet.
    pipeline.model("build", "--select", "checkpoints", "table_status")
    take_new_snapshot()
    with pytest.raises(Killed):
        jobs.snapshot(SnapshotHooks(after_plan=kill))
    (planned,) = snapshots()[1] - snapshots()[0]
    assert first_snapshot in purge(3600)[0]
    set_old("raw.snapshot_chunks")
    assert first_snapshot in purge(3600)[0], "its table has just changed"
    set_old("raw.source_tables")
    pipeline.spark.sql(f"update raw.snapshot_chunks set updated_at = now() where snapshot_id = '{planned}'")
    # The first snapshot is not admitted for that long.
    assert first_snapshot not in purge(3600)[0]
    assert [len(snapshot_ids) for snapshot_ids in snapshots()] == [2, 3]
    assert purge(0) == [{running}, {running}]
    pipeline.ingest()
    pipeline.model()
    assert_equal(pipeline, database)
    # Rows that a delayed snapshot worker commits for a snapshot that no longer exists.
    other_columns = f"select * except (snapshot_id), '{first_snapshot}' as snapshot_id"
    late_rows = f"{other_columns} from raw.snapshot_rows where source = '{name}'"
    names = ", ".join(pipeline.spark.table("raw.snapshot_rows").columns)
    pipeline.spark.sql(f"insert into raw.snapshot_rows select {names} from ({late_rows})")
    set_old("raw.source_tables")
    assert purge(3600)[0] > {first_snapshot}
    assert purge(0) == [set(), set()]
    # A table that is dropped before it was admitted.
    take_new_snapshot()
    complete_snapshot()
    database.execute("drop table orders")
    jobs.settle()
    assert purge(0) == [set(), set()]
    jobs.close()


def test_the_maintain_command_reports_its_work(pipeline: SourcePipeline) -> None:
    pipeline.sync()
    write_sources(pipeline.folder, pipeline.source)
    done = run_command(pipeline.folder, *TIDEMARK, "maintain")
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""  # nothing is an hour old
    by_customer, _ = definitions(pipeline)
    unknown = run_command(pipeline.folder, *TIDEMARK, "ops", by_customer, "99")
    assert (unknown.returncode, unknown.stdout) == (0, "")
    assert unknown.stderr == f'tidemark: {by_customer}["99"] never had a row.\n'
