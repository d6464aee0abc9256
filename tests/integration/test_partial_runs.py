"""Runs that bring some models further than others, or end half-way: what comes after makes all of them right."""

from collections.abc import Callable
from pathlib import Path

import pytest

from ingest.config import PostgresSource
from ingest.errors import Failure
from ingest.lake import Lake
from ingest.settings import JobSettings
from tests.conftest import Database
from tests.integration.replay import Jobs
from tests.integration.replica import Killed, Replica, killed_at

# Statements of a run before its release is there, and after it, in their order.
BEFORE = (
    "insert into core.events",
    "merge into core.row_state",
    "__ops",
    "insert into core.publications",
    "fast_forward('lake.core.publications'",
)
AFTER = ("fast_forward('lake.core.events'", "fast_forward('lake.buckets.", "insert overwrite core.progress")
QUERY = "select _row_key, id, {} as v from {{{{ rows('{}') }}}}"


@pytest.fixture
def two(
    lake: Lake, new_source: Callable[..., PostgresSource], settings: JobSettings, tmp_path: Path, database: Database
) -> tuple[Replica, PostgresSource]:
    """A replica of two sources, of the tables a and b; and the second of them."""
    for table in "ab":
        database.execute(f"create table {table} (id int primary key, v int)")
        database.execute(f"insert into {table} select i, i from generate_series(1, 3) i")
    first, second = (new_source(tables=(f"public.{table}",)) for table in "ab")
    return Replica(lake, first, settings, tmp_path, second), second


def land(replica: Replica, source: PostgresSource) -> None:
    """One of a replica's sources, and no other."""
    Jobs(replica.lake, source, replica.settings.settings).settle()


def versions(replica: Replica, source: PostgresSource) -> list[tuple[object, ...]]:
    query = "select row_key, columns['v'] from core.row_state where source = '{}' and not deleted"
    return replica.rows(query.format(source.name))


def view(replica: Replica, source: PostgresSource, table: str) -> str:
    """A staging view of a table of either source."""
    meta = {"source": source.name, "table": f"public.{table}"}
    return replica.write(
        f"models/staging/stg_{source.name}__{table}.sql",
        f"{{{{ config(meta={meta!r}) }}}}\n"
        "select row_key as _row_key, checkpoint_id as _checkpoint_id, cast(columns['id'] as int) as id, "
        "cast(columns['v'] as int) as v\n"
        f"from {{{{ ref('row_state') }}}} where source = '{source.name}' and not deleted\n",
    )


def test_sources_at_different_checkpoints_have_one_version_of_each_row(
    two: tuple[Replica, PostgresSource], database: Database
) -> None:
    replica, other = two
    replica.sync()
    database.execute("update a set v = 10; delete from a where id = 3")
    land(replica, replica.source)
    replica.model("build", "--select", "checkpoints", "events", "tables")
    database.execute("update b set v = 20")
    land(replica, other)
    replica.model()
    assert versions(replica, replica.source) == [('["1"]', "10"), ('["2"]', "10")]
    assert versions(replica, other) == [('["1"]', "20"), ('["2"]', "20"), ('["3"]', "20")]


def test_runs_killed_at_any_statement_leave_nothing_behind(
    two: tuple[Replica, PostgresSource], database: Database
) -> None:
    """One run after the other is killed, each later than the one before: the last ones while they finish a release."""
    replica, _ = two
    staged = view(replica, replica.source, "a")
    definition = replica.definition("one", QUERY.format("v", staged), bucket_by=[], object_id="id", evaluate="rows")
    shown = f"select id, v from staging.{staged}"
    replica.sync()

    def killed(statement: str) -> None:
        with (
            pytest.raises((Failure, Killed)),
            killed_at(lambda sql: statement in sql and ("__ops" not in statement or "insert into" in sql)),
        ):
            replica.model()

    def stream() -> None:
        jobs = Jobs(replica.lake, replica.source, replica.settings.settings)
        jobs.stream()
        jobs.close()

    def assert_equal() -> None:
        assert replica.rows(shown) == database.execute("select id, v from a order by id")
        assert replica.bucket(definition, "id, v") == database.execute(
            f"select '{definition}[]', id, v from a order by id"
        )
        assert replica.replayed(definition) == replica.logged_rows(definition)
        log = f"select seq from core.events where source = '{replica.source.name}'"
        assert len(set(replica.rows(log))) == len(replica.rows(log))

    before = replica.rows(shown)
    database.execute("update a set v = 10 where id = 1; delete from a where id = 2; insert into a values (4, 4)")
    stream()
    for statement in BEFORE:
        killed(statement)
        assert replica.rows(shown) == before, statement
    replica.model()
    assert_equal()
    database.execute("update a set v = 20 where id = 1; delete from a where id = 3; insert into a values (2, 5)")
    stream()
    for statement in AFTER:
        killed(statement)
    replica.model()
    assert_equal()


@pytest.mark.slow(reason="models selected one by one; sources at different checkpoints are in CI")
def test_events_ahead_of_the_tables_are_folded_all(two: tuple[Replica, PostgresSource], database: Database) -> None:
    replica, _ = two
    replica.sync()
    database.execute("update a set v = 10 where id = 1")
    land(replica, replica.source)
    replica.model("build", "--select", "checkpoints", "tables")
    database.execute("update a set v = 20 where id = 2")
    land(replica, replica.source)
    replica.model("build", "--select", "checkpoints", "events")
    replica.model("build", "--select", "row_state")
    assert versions(replica, replica.source) == [('["1"]', "10"), ('["2"]', "2"), ('["3"]', "3")]
    replica.model()
    assert versions(replica, replica.source) == [('["1"]', "10"), ('["2"]', "20"), ('["3"]', "3")]


@pytest.mark.slow(reason="six runs of dbt for a definition that is edited twice")
def test_a_source_that_a_definition_no_longer_reads_says_nothing_of_it(
    two: tuple[Replica, PostgresSource], database: Database
) -> None:
    replica, other = two
    first, second = view(replica, replica.source, "a"), view(replica, other, "b")
    options = {"bucket_by": [], "object_id": "id", "key": ["id"]}
    joined = f"select a.id, b.v from {{{{ ref('{first}') }}}} as a join {{{{ ref('{second}') }}}} as b on a.id = b.id"
    one = replica.definition("one", joined, **options)
    replica.sync()
    replica.definition("one", f"select id, v + 100 as v from {{{{ ref('{first}') }}}}", **options)
    assert replica.model()[one].message.startswith("definition changed")
    assert "changed" not in replica.model()[one].message.replace("unchanged", "")
    database.execute("update a set v = 50 where id = 1")
    replica.sync()
    replica.definition("one", joined, **options)
    replica.model()
    assert replica.bucket(one, "id, v") == [(f"{one}[]", 1, 1), (f"{one}[]", 2, 2), (f"{one}[]", 3, 3)]


@pytest.mark.parametrize(
    "then", ["int", pytest.param("bigint", marks=pytest.mark.slow(reason="as changed back, which is in CI"))]
)
def test_a_column_whose_type_was_being_changed_is_written_anew(
    two: tuple[Replica, PostgresSource], database: Database, then: str
) -> None:
    replica, _ = two
    rows = view(replica, replica.source, "a")
    options = {"bucket_by": [], "object_id": "id", "evaluate": "rows"}
    one = replica.definition("one", QUERY.format("cast(v as int)", rows), **options)
    replica.sync()
    replica.definition("one", QUERY.format("cast(v as bigint)", rows), **options)
    with pytest.raises(Failure), killed_at(lambda sql: f"insert into buckets.{one}" in sql):
        replica.model()
    replica.definition("one", QUERY.format(f"cast(v as {then})", rows), **options)
    replica.model()
    assert replica.bucket(one, "id, v") == [(f"{one}[]", 1, 1), (f"{one}[]", 2, 2), (f"{one}[]", 3, 3)]
    assert replica.replayed(one) == replica.logged_rows(one)


@pytest.mark.slow(reason="as the types in test_models, which are in CI")
def test_a_small_integer_is_no_other_type_when_the_definition_changes(two: tuple[Replica, PostgresSource]) -> None:
    replica, _ = two
    rows = view(replica, replica.source, "a")
    options = {"bucket_by": [], "object_id": "id", "evaluate": "rows"}
    one = replica.definition("one", QUERY.format("cast(v as smallint)", rows), **options)
    replica.sync()
    replica.definition("one", QUERY.format("cast(v as smallint)", rows) + " where id > 1", **options)
    assert replica.model()[one].message == "definition changed, PUT 0, REMOVE 1"


@pytest.mark.slow(reason="seven runs of dbt")
def test_a_seed_is_part_of_the_definitions_that_read_it(two: tuple[Replica, PostgresSource]) -> None:
    replica, _ = two
    rows = view(replica, replica.source, "a")
    seed = replica.write(f"seeds/names_{replica.source.name}.csv", "id,name\n1,one\n2,two\n")
    query = f"select s.id, s.name from {{{{ ref('{rows}') }}}} as a join {{{{ ref('{seed}') }}}} as s on a.id = s.id"
    one = replica.definition("one", query, bucket_by=[], object_id="id", key=["id"])
    replica.sync()
    replica.write(f"seeds/{seed}.csv", "id,name\n1,uno\n2,two\n")
    # It is part of it as it is loaded.
    assert replica.model("run")[one].message == "unchanged"
    assert replica.model()[one].message == "definition changed, PUT 1, REMOVE 0"
    assert replica.bucket(one, "id, name") == [(f"{one}[]", 1, "uno"), (f"{one}[]", 2, "two")]
    retyped = "seeds:\n  - name: {}\n    config:\n      column_types: {{id: 'decimal(9, 0)'}}\n"
    replica.write(f"seeds/{seed}.yml", retyped.format(seed))
    replica.model("seed", "--full-refresh")
    assert replica.model()[one].message == "definition changed, PUT 2, REMOVE 0"
    table = replica.write(
        f"models/tables/copy_{replica.source.name}.sql",
        f"{{{{ config(materialized='table', schema='core') }}}} select * from {{{{ ref('{rows}') }}}}",
    )
    replica.definition("one", query.replace(rows, table), bucket_by=[], object_id="id", key=["id"])
    with pytest.raises(Failure, match=f"reads '{table}', which may change without its being told"):
        replica.model()
