"""Runs that bring only some models to the checkpoint, or are killed: the next run repairs all models."""

from collections.abc import Callable
from pathlib import Path

import pytest

from ingest.common.errors import Failure
from ingest.config.job_settings import JobSettings
from ingest.config.sources_file import PostgresSource
from ingest.lake import Lake
from tests.conftest import Database
from tests.harness.kill_points import StatementKilled, kill_at_statement
from tests.harness.pipeline import SourcePipeline
from tests.harness.postgres_jobs import PostgresJobs

# Statements of a run before and after the commit of its release, in order.
BEFORE = (
    "insert into core.events",
    "merge into core.row_state",
    "__ops",
    "insert into core.releases",
    "fast_forward('lake.core.releases'",
)
AFTER = ("fast_forward('lake.core.events'", "fast_forward('lake.buckets.", "insert overwrite core.model_watermarks")
QUERY = "select _row_key, id, {} as v from {{{{ rows('{}') }}}}"


@pytest.fixture
def two_sources(
    lake: Lake, new_source: Callable[..., PostgresSource], settings: JobSettings, tmp_path: Path, database: Database
) -> tuple[SourcePipeline, PostgresSource]:
    """A replica of the tables a and b of two sources; and the second source."""
    for table in "ab":
        database.execute(f"create table {table} (id int primary key, v int)")
        database.execute(f"insert into {table} select i, i from generate_series(1, 3) i")
    first, second = (new_source(tables=(f"public.{table}",)) for table in "ab")
    return SourcePipeline(lake, first, settings, tmp_path, second), second


def ingest_source(pipeline: SourcePipeline, source: PostgresSource) -> None:
    """Commits changes of one source of the replica and of no other."""
    PostgresJobs(pipeline.lake, source, pipeline.settings.settings).settle()


def versions(pipeline: SourcePipeline, source: PostgresSource) -> list[tuple[object, ...]]:
    query = "select row_key, columns['v'] from core.row_state where source = '{}' and not deleted"
    return pipeline.rows(query.format(source.name))


def view(pipeline: SourcePipeline, source: PostgresSource, table: str) -> str:
    """A staging view of a table of one source."""
    meta = {"source": source.name, "table": f"public.{table}"}
    return pipeline.write(
        f"models/staging/stg_{source.name}__{table}.sql",
        f"{{{{ config(meta={meta!r}) }}}}\n"
        "select row_key as _row_key, checkpoint_id as _checkpoint_id, cast(columns['id'] as int) as id, "
        "cast(columns['v'] as int) as v\n"
        f"from {{{{ ref('row_state') }}}} where source = '{source.name}' and not deleted\n",
    )


def test_sources_at_different_checkpoints_have_one_version_of_each_row(
    two_sources: tuple[SourcePipeline, PostgresSource], database: Database
) -> None:
    pipeline, other = two_sources
    pipeline.sync()
    database.execute("update a set v = 10; delete from a where id = 3")
    ingest_source(pipeline, pipeline.source)
    pipeline.model("build", "--select", "checkpoints", "events", "table_status")
    database.execute("update b set v = 20")
    ingest_source(pipeline, other)
    pipeline.model()
    assert versions(pipeline, pipeline.source) == [('["1"]', "10"), ('["2"]', "10")]
    assert versions(pipeline, other) == [('["1"]', "20"), ('["2"]', "20"), ('["3"]', "20")]


def test_runs_killed_at_any_statement_leave_no_partial_results(
    two_sources: tuple[SourcePipeline, PostgresSource], database: Database
) -> None:
    """Successive runs are killed, each at a later statement; the last ones while they finish a release."""
    pipeline, _ = two_sources
    staged = view(pipeline, pipeline.source, "a")
    definition = pipeline.definition(
        "one", QUERY.format("v", staged), bucket_by=[], object_id="id", evaluation="incremental"
    )
    shown = f"select id, v from staging.{staged}"
    pipeline.sync()

    def run_killed_at(statement: str) -> None:
        with (
            pytest.raises((Failure, StatementKilled)),
            kill_at_statement(lambda sql: statement in sql and ("__ops" not in statement or "insert into" in sql)),
        ):
            pipeline.model()

    def stream() -> None:
        jobs = PostgresJobs(pipeline.lake, pipeline.source, pipeline.settings.settings)
        jobs.stream()
        jobs.close()

    def assert_equal() -> None:
        assert pipeline.rows(shown) == database.execute("select id, v from a order by id")
        assert pipeline.bucket(definition, "id, v") == database.execute(
            f"select '{definition}[]', id, v from a order by id"
        )
        assert pipeline.replayed(definition) == pipeline.logged_rows(definition)
        log = f"select seq from core.events where source = '{pipeline.source.name}'"
        assert len(set(pipeline.rows(log))) == len(pipeline.rows(log))

    before = pipeline.rows(shown)
    database.execute("update a set v = 10 where id = 1; delete from a where id = 2; insert into a values (4, 4)")
    stream()
    for statement in BEFORE:
        run_killed_at(statement)
        assert pipeline.rows(shown) == before, statement
    pipeline.model()
    assert_equal()
    database.execute("update a set v = 20 where id = 1; delete from a where id = 3; insert into a values (2, 5)")
    stream()
    for statement in AFTER:
        run_killed_at(statement)
    pipeline.model()
    assert_equal()


def test_all_events_ahead_of_the_tables_are_applied(
    two_sources: tuple[SourcePipeline, PostgresSource], database: Database
) -> None:
    pipeline, _ = two_sources
    pipeline.sync()
    database.execute("update a set v = 10 where id = 1")
    ingest_source(pipeline, pipeline.source)
    pipeline.model("build", "--select", "checkpoints", "table_status")
    database.execute("update a set v = 20 where id = 2")
    ingest_source(pipeline, pipeline.source)
    pipeline.model("build", "--select", "checkpoints", "events")
    pipeline.model("build", "--select", "row_state")
    assert versions(pipeline, pipeline.source) == [('["1"]', "10"), ('["2"]', "2"), ('["3"]', "3")]
    pipeline.model()
    assert versions(pipeline, pipeline.source) == [('["1"]', "10"), ('["2"]', "20"), ('["3"]', "3")]


def test_a_source_that_a_definition_no_longer_reads_does_not_affect_it(
    two_sources: tuple[SourcePipeline, PostgresSource], database: Database
) -> None:
    pipeline, other = two_sources
    first, second = view(pipeline, pipeline.source, "a"), view(pipeline, other, "b")
    options = {"bucket_by": [], "object_id": "id", "unique_key": ["id"]}
    joined = f"select a.id, b.v from {{{{ ref('{first}') }}}} as a join {{{{ ref('{second}') }}}} as b on a.id = b.id"
    definition = pipeline.definition("one", joined, **options)
    pipeline.sync()
    pipeline.definition("one", f"select id, v + 100 as v from {{{{ ref('{first}') }}}}", **options)
    assert pipeline.model()[definition].message.startswith("definition changed")
    assert "changed" not in pipeline.model()[definition].message.replace("unchanged", "")
    database.execute("update a set v = 50 where id = 1")
    pipeline.sync()
    pipeline.definition("one", joined, **options)
    pipeline.model()
    assert pipeline.bucket(definition, "id, v") == [
        (f"{definition}[]", 1, 1),
        (f"{definition}[]", 2, 2),
        (f"{definition}[]", 3, 3),
    ]


@pytest.mark.parametrize(
    "then",
    ["int", "bigint"],
)
def test_a_column_of_an_interrupted_type_change_is_written_again(
    two_sources: tuple[SourcePipeline, PostgresSource], database: Database, then: str
) -> None:
    pipeline, _ = two_sources
    rows = view(pipeline, pipeline.source, "a")
    options = {"bucket_by": [], "object_id": "id", "evaluation": "incremental"}
    definition = pipeline.definition("one", QUERY.format("cast(v as int)", rows), **options)
    pipeline.sync()
    pipeline.definition("one", QUERY.format("cast(v as bigint)", rows), **options)
    with pytest.raises(Failure), kill_at_statement(lambda sql: f"insert into buckets.{definition}" in sql):
        pipeline.model()
    pipeline.definition("one", QUERY.format(f"cast(v as {then})", rows), **options)
    pipeline.model()
    assert pipeline.bucket(definition, "id, v") == [
        (f"{definition}[]", 1, 1),
        (f"{definition}[]", 2, 2),
        (f"{definition}[]", 3, 3),
    ]
    assert pipeline.replayed(definition) == pipeline.logged_rows(definition)


def test_a_smallint_column_stays_compatible_when_the_definition_changes(
    two_sources: tuple[SourcePipeline, PostgresSource],
) -> None:
    pipeline, _ = two_sources
    rows = view(pipeline, pipeline.source, "a")
    options = {"bucket_by": [], "object_id": "id", "evaluation": "incremental"}
    definition = pipeline.definition("one", QUERY.format("cast(v as smallint)", rows), **options)
    pipeline.sync()
    pipeline.definition("one", QUERY.format("cast(v as smallint)", rows) + " where id > 1", **options)
    assert pipeline.model()[definition].message == "definition changed, PUT 0, REMOVE 1"


def test_a_seed_is_part_of_the_definitions_that_read_it(two_sources: tuple[SourcePipeline, PostgresSource]) -> None:
    pipeline, _ = two_sources
    rows = view(pipeline, pipeline.source, "a")
    seed = pipeline.write(f"seeds/names_{pipeline.source.name}.csv", "id,name\n1,one\n2,two\n")
    query = f"select s.id, s.name from {{{{ ref('{rows}') }}}} as a join {{{{ ref('{seed}') }}}} as s on a.id = s.id"
    definition = pipeline.definition("one", query, bucket_by=[], object_id="id", unique_key=["id"])
    pipeline.sync()
    pipeline.write(f"seeds/{seed}.csv", "id,name\n1,uno\n2,two\n")
    # The hash covers the seed's loaded rows.
    assert pipeline.model("run")[definition].message == "unchanged"
    assert pipeline.model()[definition].message == "definition changed, PUT 1, REMOVE 0"
    assert pipeline.bucket(definition, "id, name") == [(f"{definition}[]", 1, "uno"), (f"{definition}[]", 2, "two")]
    retyped = "seeds:\n  - name: {}\n    config:\n      column_types: {{id: 'decimal(9, 0)'}}\n"
    pipeline.write(f"seeds/{seed}.yml", retyped.format(seed))
    pipeline.model("seed", "--full-refresh")
    assert pipeline.model()[definition].message == "definition changed, PUT 2, REMOVE 0"
    table = pipeline.write(
        f"models/tables/copy_{pipeline.source.name}.sql",
        f"{{{{ config(materialized='table', schema='core') }}}} select * from {{{{ ref('{rows}') }}}}",
    )
    pipeline.definition("one", query.replace(rows, table), bucket_by=[], object_id="id", unique_key=["id"])
    with pytest.raises(Failure, match=f"reads '{table}', whose changes are not tracked"):
        pipeline.model()
