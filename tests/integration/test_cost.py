"""The number of rows that runs read: a run reads no rows of unchanged tables."""

from pathlib import Path

import pytest

from ingest.config.job_settings import JobSettings
from ingest.config.sources_file import PostgresSource
from ingest.lake import Lake
from tests.conftest import Database
from tests.harness.kill_points import intercept_statements
from tests.harness.pipeline import SourcePipeline

MANY = 30_000


@pytest.fixture
def pipeline(
    lake: Lake, source: PostgresSource, settings: JobSettings, tmp_path: Path, database: Database
) -> SourcePipeline:
    """One large table, and small tables with a definition each."""
    database.execute(
        f"""
        create table large (id int primary key, v text);
        insert into large select i, 'v' || i from generate_series(1, {MANY}) i;
        create table small (id int primary key, v text, note text);
        alter table small alter note set storage external;
        insert into small select i, 'v' || i, repeat('x', 3000) from generate_series(1, 10) i;
        create table keyless (id int, v text);
        alter table keyless replica identity full;
        insert into keyless select i, 'v' from generate_series(1, 10) i;
        create table brief (id int primary key, v text);
        insert into brief values (1, 'v')
        """
    )
    pipeline = SourcePipeline(lake, source, settings, tmp_path)
    for table in ("large", "small", "keyless"):
        view = pipeline.view(table, {"id": "int", "v": "string"})
        pipeline.definition(
            table,
            f"select _row_key, id, v from {{{{ rows('{view}') }}}}",
            bucket_by=[],
            object_id="id",
            evaluation="incremental",
        )
    pipeline.sync()
    return pipeline


def count_rows_read(pipeline: SourcePipeline) -> int:
    """The number of rows, of all tables of the lake, that a run reads."""
    before, stages = _stages(pipeline), {}
    with intercept_statements(lambda _: stages.update(_stages(pipeline))):  # Spark keeps the last stages only
        pipeline.model()
    stages.update(_stages(pipeline))
    return sum(rows for stage, rows in stages.items() if stage not in before)


def _stages(pipeline: SourcePipeline) -> dict[int, int]:
    """The rows that each of the last stages of this Spark session has read."""
    context = pipeline.spark.sparkContext
    assert context._gateway is not None
    context._jsc.sc().listenerBus().waitUntilEmpty()
    no_quantiles = context._gateway.new_array(context._gateway.jvm.double, 0)
    all_stages = context._jsc.sc().statusStore().stageList(None, False, False, no_quantiles, None)
    stages = [all_stages.apply(n) for n in range(all_stages.size())]
    return {stage.stageId(): stage.inputRecords() for stage in stages}


CHANGES = [
    "update small set v = 'w', note = 'short' where id < 3; insert into keyless values (1, 'v')",
    "update small set v = 'x' where id > 3",  # without their notes: unchanged TOAST
    "update small set id = 20 where id = 4; delete from keyless where id = 2",
    "create table late (id int primary key); insert into late values (1); drop table brief",
    "alter table keyless add extra int; truncate small",
]


def test_a_run_reads_no_rows_of_unchanged_tables(pipeline: SourcePipeline, database: Database) -> None:
    for change in CHANGES:
        database.execute(change)
        pipeline.ingest()
        assert (change, 0) < (change, count_rows_read(pipeline)) < (change, MANY)


def test_a_change_reads_its_table_three_times_by_numeric_key(pipeline: SourcePipeline, database: Database) -> None:
    database.execute("update large set v = 'w' where id = 1")
    pipeline.ingest()
    appends: list[str] = []
    with intercept_statements(lambda sql: appends.append(sql) if "insert into buckets.large_" in sql else None):
        read = count_rows_read(pipeline)
    # Once in `row_state`, once in the definition, and once for the delete there; no further read for keys that are no
    # numbers.
    assert 3 * MANY < read < 4 * MANY
    # In the evaluated rows, and in the rows that they are compared with.
    assert appends[0].count("cast(`id` as string) as object_id") == 2
