"""Which database is behind a DSN, and whose a slot is: nothing of another one is taken for a source's own."""

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from pydantic import SecretStr

from ingest.commands.verify import verify_tables
from ingest.common.errors import Failure
from ingest.config.job_settings import JobSettings
from ingest.config.sources_file import PostgresSource, Settings
from ingest.lake import Lake
from ingest.pipeline.ingest_jobs import Jobs as AllJobs
from ingest.positions.position import current_epochs
from ingest.snapshot.snapshotter import SnapshotHooks
from ingest.sources.postgres.writers.writer_count import set_writers
from tests.conftest import Database
from tests.harness.postgres_jobs import PostgresJobs

NewSource = Callable[..., PostgresSource]


@pytest.fixture
def orders(database: Database) -> Database:
    database.execute("create table orders (id int primary key, note text); insert into orders values (1, 'ours')")
    return database


@pytest.fixture
def elsewhere(orders: Database, postgres_server: str) -> Iterator[str]:
    """The DSN of another database of the server, with a table of the same name."""
    name = f"{orders.name}_other"
    with psycopg.connect(postgres_server, autocommit=True) as admin:
        admin.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        dsn = make_conninfo(orders.dsn, dbname=name)
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("create table orders (id int primary key, note text)")
        yield dsn
        admin.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


@pytest.mark.parametrize("command", ["verify", "snapshot", "stream"])
def test_another_database_behind_the_dsn_is_refused_and_changes_nothing(
    jobs: PostgresJobs, elsewhere: str, command: str
) -> None:
    jobs.settle()
    before = jobs.lake.tables.read(jobs.source.name)
    wrong = jobs.source.model_copy(update={"dsn": SecretStr(elsewhere)})
    settings = Settings(sources={wrong.name: wrong}, settings=jobs.settings)

    def run() -> None:
        if command == "verify":
            list(verify_tables(jobs.lake, settings, 1))
        else:
            with AllJobs(jobs.lake, settings, stream=command == "stream").running():
                pass

    with pytest.raises(Failure, match="the replication slot belongs to database"):
        run()
    assert jobs.lake.tables.read(jobs.source.name) == before
    with psycopg.connect(elsewhere) as connection:
        assert connection.execute("select pubname from pg_publication").fetchall() == []


def test_another_cluster_is_refused_by_verify(jobs: PostgresJobs, orders: Database) -> None:
    jobs.settle()
    mine = current_epochs(jobs.lake.positions.read(jobs.source.name))[jobs.source.name, 1]
    # As if all that is stored had come from elsewhere.
    jobs.lake.positions.store(
        replace(mine, system_id="77", start_position=mine.position + 1, position=mine.position + 1)
    )
    before = jobs.lake.tables.read(jobs.source.name)
    settings = Settings(sources={jobs.source.name: jobs.source}, settings=jobs.settings)
    with pytest.raises(Failure, match="the DSN leads to another database cluster"):
        list(verify_tables(jobs.lake, settings, 1))
    assert jobs.lake.tables.read(jobs.source.name) == before


def test_the_slot_of_another_source_is_not_recreated(
    lake: Lake, settings: JobSettings, new_source: NewSource, orders: Database
) -> None:
    first = new_source(slot="shared_slot", publication="shared")
    jobs = PostgresJobs(lake, first, settings)
    jobs.settle()
    orders.execute("insert into orders values (2, 'streamed')")
    dsn = make_conninfo(orders.dsn, application_name="written otherwise")
    second = new_source(dsn=dsn, slot="shared_slot", publication="shared")
    with pytest.raises(Failure, match=f"slot is that of source {first.name}.*Name another slot"):
        PostgresJobs(lake, second, settings).open()
    jobs.stream()
    jobs.assert_equal("public.orders")
    jobs.close()


def test_a_slot_of_the_same_name_on_another_cluster_is_no_obstacle(
    lake: Lake, settings: JobSettings, new_source: NewSource, orders: Database
) -> None:
    source: PostgresSource = new_source(writers=2)
    jobs = PostgresJobs(lake, source, settings)
    jobs.settle()
    second = current_epochs(lake.positions.read(source.name))[source.name, 2]
    lake.positions.store(replace(second, source=f"other_{source.name}", system_id="77"))
    set_writers(lake, source.model_copy(update={"writers": 1}), settings)
    jobs.close()
    assert orders.execute("select slot_name from pg_replication_slots where database = current_database()") == [
        (source.slot,)
    ]


def test_executors_without_access_are_retried_with_pauses(
    lake: Lake,
    settings: JobSettings,
    new_source: NewSource,
    orders: Database,
    role: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    orders.execute(f"alter role {role} replication; grant select on orders to {role}")
    orders.execute("create publication given for table orders")
    source = new_source(dsn=make_conninfo(orders.dsn, user=role), publication="given")
    jobs = PostgresJobs(lake, source, settings)
    jobs.stream()
    jobs.close()
    limits = iter([1])
    snapshotter = jobs.snapshotter(SnapshotHooks(after_claim=lambda _: limit(next(limits, -1))))
    waited: list[float | None] = []

    def limit(connections: int) -> None:
        orders.execute(f"alter role {role} connection limit {connections}")

    def wait(seconds: float | None = None) -> bool:
        waited.append(seconds)
        limit(-1)
        return False

    monkeypatch.setattr(snapshotter._wake, "wait", wait)
    with caplog.at_level(logging.WARNING), jobs.streaming():
        snapshotter.run(until_done=True)
    assert waited
    assert caplog.text.count("retrying: can't connect to Postgres (too many connections") == 1
    jobs.assert_equal("public.orders")
