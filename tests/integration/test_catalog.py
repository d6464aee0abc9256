"""After each change of the catalog the lake's table equals the source's, with the least work that is safe."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import psycopg
import pytest

from ingest.common.errors import Failure
from ingest.common.records import EventBatch
from ingest.config.job_settings import JobSettings
from ingest.config.sources_file import PostgresSource
from ingest.lake import Lake
from ingest.lake.source_tables import DONE, ENDED, QUEUED, SourceTable, SourceTables
from ingest.positions.position import StreamReset
from ingest.snapshot.snapshotter import SnapshotHooks
from ingest.sources.postgres.catalog import catalog_tables
from ingest.sources.postgres.catalog.catalog_tables import CatalogTable
from ingest.sources.postgres.postgres_connection import Connection, LazyConnection, connect
from ingest.sources.postgres.replication.replication_feed import PostgresFeed
from ingest.sources.postgres.schema_tracking.table_sync import CatalogSync
from ingest.sources.postgres.writers.writer_reset import start_over
from ingest.stream.batch_committer import CommitHooks, Progress
from ingest.stream.open_batch import Batch
from ingest.stream.stream_writer import StreamWriter
from tests.conftest import Database
from tests.harness.kill_points import Killed, call_once, kill
from tests.harness.postgres_jobs import PostgresJobs


@pytest.fixture
def orders(database: Database) -> Database:
    database.execute(
        "create table orders (id int primary key, note text, n int);"
        "insert into orders select i, 'note ' || i, i from generate_series(1, 20) i"
    )
    return database


def released(committed: threading.Semaphore) -> Callable[[Batch], None]:
    """A hook that releases the semaphore when rows were committed."""

    def tell(batch: Batch) -> None:
        if batch.rows:
            committed.release()

    return tell


def test_a_snapshot_is_queued_before_the_first_row_of_a_new_schema(jobs: PostgresJobs, orders: Database) -> None:
    jobs.settle()
    orders.execute("alter table orders alter n type bigint; update orders set n = 2^40 where id = 1")
    jobs.stream()  # no snapshotter runs
    assert jobs.table("public.orders").state == "queued"
    jobs.settle()
    jobs.assert_equal("public.orders")


FILLED = "alter table orders add c uuid default gen_random_uuid()"


def test_ddl_that_commits_during_a_catalog_read_is_seen_whole(jobs: PostgresJobs, orders: Database) -> None:
    jobs.settle()
    snapshotter = jobs.snapshotter()
    with ThreadPoolExecutor() as pool, orders.connect(autocommit=False) as altering:
        altering.execute(FILLED)
        look = pool.submit(snapshotter.run, until_done=True)
        orders.lock_awaited("orders")
        altering.commit()
        look.result(60)
    jobs.settle()
    jobs.assert_equal("public.orders")


def test_a_catalog_read_for_the_stream_waits_for_open_ddl(orders: Database) -> None:
    ((oid,),) = orders.execute("select 'orders'::regclass::oid::bigint")
    with connect(orders.dsn) as looking, ThreadPoolExecutor() as pool, orders.connect(autocommit=False) as altering:
        before = catalog_tables.read_table(looking, oid)
        altering.execute(FILLED)
        look = pool.submit(catalog_tables.read_table, looking, oid)
        orders.lock_awaited("orders")
        altering.commit()
        after = look.result(60)
    assert before is not None
    assert after is not None
    assert [c.name for c in after.columns] == ["id", "note", "n", "c"]
    assert after.partitions[0].storage != before.partitions[0].storage


def test_a_table_that_was_unlogged_gets_a_new_snapshot(
    lake: Lake, settings: JobSettings, new_source: Callable[..., PostgresSource], orders: Database
) -> None:
    orders.execute("create publication everything for all tables")
    jobs = PostgresJobs(lake, new_source(publication="everything"), settings)
    jobs.settle()
    before = jobs.table("public.orders")
    orders.execute("alter table orders set unlogged; update orders set n = -n")
    jobs.settle()
    assert jobs.table("public.orders").snapshot_id == before.snapshot_id
    orders.execute("alter table orders set logged")
    jobs.settle()
    jobs.assert_equal("public.orders")
    jobs.close()


@pytest.mark.parametrize(
    "away",
    [
        "alter publication p drop table orders; alter table orders rename to orders_old",
        "alter table orders rename to orders_old; alter table orders_old drop constraint orders_pkey",
    ],
)
def test_a_table_renamed_out_of_scope_leaves_its_name_to_a_successor(
    lake: Lake, settings: JobSettings, new_source: Callable[..., PostgresSource], orders: Database, away: str
) -> None:
    orders.execute("create publication p for table orders")
    jobs = PostgresJobs(lake, new_source(publication="p", tables=("public.orders*",)), settings)
    jobs.settle()
    orders.execute(
        f"begin; {away}; create table orders (id int primary key, note text);"
        "insert into orders values (3, 'new'); alter publication p add table orders; commit"
    )
    jobs.settle()
    states = sorted((t.table_name, t.state) for t in lake.tables.read(jobs.source.name).values())
    assert states == [("public.orders", DONE), ("public.orders", ENDED)]
    jobs.assert_equal("public.orders")
    jobs.close()


def test_an_existing_publication_is_used_with_its_columns_and_rows(
    lake: Lake,
    settings: JobSettings,
    new_source: Callable[..., PostgresSource],
    orders: Database,
) -> None:
    orders.execute(
        "create publication part for table orders (id, n) where (id > 5);create table unpublished (id int primary key)"
    )
    jobs = PostgresJobs(lake, new_source(publication="part"), settings)
    jobs.settle()
    assert [c.name for c in jobs.table("public.orders").columns] == ["id", "n"]
    orders.execute("update orders set n = 100")
    jobs.stream()
    assert len(jobs.events()) == 15
    ((kept,),) = orders.execute("select array_agg(array[id, n]::text[] order by id) from orders where id > 5")
    assert sorted(jobs.lake_rows("public.orders"), key=lambda r: int(r[0] or 0)) == [tuple(r) for r in kept]
    jobs.close()


@pytest.mark.parametrize(
    ("listed", "changes"),
    [
        ("table p", ["add table p_0 where (id > 10)", "set table p"]),
        ("table p_0 where (id > 10), tables in schema public", ["drop tables in schema public"]),
        ("table p_0 where (id > 10)", ["set table p_0 where (id > 5)", "set table p_0"]),
    ],
    ids=["partition", "schema", "table"],
)
def test_another_row_filter_causes_a_snapshot(
    lake: Lake,
    settings: JobSettings,
    new_source: Callable[..., PostgresSource],
    database: Database,
    listed: str,
    changes: Sequence[str],
) -> None:
    database.execute(
        "create table p (id int primary key, n int) partition by range (id);"
        "create table p_0 partition of p for values from (0) to (100);"
        f"insert into p select i, i from generate_series(1, 20) i; create publication part for {listed}"
    )
    jobs = PostgresJobs(lake, new_source(publication="part"), settings)
    jobs.settle()
    snapshot_ids = {jobs.table("public.p").snapshot_id}
    for change in changes:
        database.execute(f"alter publication part {change}")
        jobs.settle()
        snapshot_ids.add(jobs.table("public.p").snapshot_id)
    assert len(snapshot_ids) == 1 + len(changes)
    jobs.close()


def test_a_table_that_was_taken_out_of_the_publication_stays_out_under_another_name(
    jobs: PostgresJobs, orders: Database
) -> None:
    orders.execute("create table other (id int primary key)")
    jobs.settle()
    orders.execute(f"alter publication {jobs.source.publication} drop table orders")
    jobs.settle()
    orders.execute("alter table orders rename to secrets")
    jobs.settle()
    jobs.settle()
    assert orders.execute(
        f"select tablename::text from pg_publication_tables where pubname = '{jobs.source.publication}'"
    ) == [("other",)]


def test_partitions_under_their_root_are_refused_with_what_to_do(
    lake: Lake,
    settings: JobSettings,
    new_source: Callable[..., PostgresSource],
    orders: Database,
) -> None:
    orders.execute("create publication rooted for table orders with (publish_via_partition_root)")
    with pytest.raises(Failure, match="publish_via_partition_root = false"):
        PostgresJobs(lake, new_source(publication="rooted"), settings).settle()


@pytest.mark.both_versions
def test_generated_columns_are_in_neither_snapshot_nor_stream(jobs: PostgresJobs, database: Database) -> None:
    database.execute(
        "create table g (id int primary key, n int, twice int generated always as (n * 2) stored);"
        "insert into g values (1, 1)"
    )
    jobs.settle()
    database.execute("insert into g values (2, 2)")
    jobs.stream()
    assert set(jobs.events()[0]["columns"]) == {"id", "n"}
    jobs.assert_equal("public.g")


# Partitions


@pytest.fixture
def parts(database: Database) -> Database:
    database.execute(
        "create table p (id int, region text, n int, primary key (id, region))"
        " partition by list (region);"
        "create table p_eu partition of p for values in ('eu');"
        "create table p_us (n int, region text not null, id int not null);"
        "alter table p_us add primary key (id, region);"
        "alter table p attach partition p_us for values in ('us');"
        "insert into p select i, case i % 2 when 0 then 'eu' else 'us' end, i"
        " from generate_series(1, 20) i"
    )
    return database


def test_a_root_is_renamed_while_its_partitions_are_streamed(jobs: PostgresJobs, parts: Database) -> None:
    jobs.settle()
    committed = threading.Semaphore(0)
    with jobs.streaming(CommitHooks(after_commit=lambda _: committed.release())):
        parts.execute("update p set n = -1 where id = 1")
        assert committed.acquire(timeout=60)
        parts.execute("alter table p rename to q")
        jobs.snapshot()
        assert jobs.table("public.q").state == DONE
        parts.execute("update q set n = -3 where id = 3")
        assert committed.acquire(timeout=60)
        deadline = time.monotonic() + 60
        while jobs.table("public.q").state == DONE and time.monotonic() < deadline:
            time.sleep(0.05)
    jobs.settle()
    jobs.assert_equal("public.q")


def test_an_idle_partition_needs_one_snapshot_after_a_column_rename(jobs: PostgresJobs, parts: Database) -> None:
    parts.execute("create table other (id int primary key)")
    jobs.settle()
    full = "alter table other replica identity full"
    committed = threading.Semaphore(0)
    with jobs.streaming(CommitHooks(after_commit=lambda _: committed.release())):
        for statement in (
            "update p set n = -n",  # the stream has heard of both, of p_us last
            "alter table p rename n to m; update p set m = 6 where region = 'eu'",
            # For this all tables are described again, p_us as it was.
            f"{full}; insert into other values (1); alter table other replica identity default",
        ):
            for each in statement.split(";"):
                parts.execute(each)
            assert committed.acquire(timeout=60)
            jobs.snapshot()
        before = jobs.table("public.p")
        parts.execute("update p set m = 7 where region = 'eu'")
        assert committed.acquire(timeout=60)
        assert jobs.table("public.p") == before
    assert before.state == DONE
    jobs.assert_equal("public.p")


@pytest.mark.parametrize("publication", ["tidemark", "everything"])
def test_a_partition_that_is_detached_concurrently_is_its_own_table(
    lake: Lake, settings: JobSettings, new_source: Callable[..., PostgresSource], parts: Database, publication: str
) -> None:
    if publication == "everything":
        parts.execute("create publication everything for all tables")
    jobs = PostgresJobs(lake, new_source(publication=publication), settings)
    jobs.settle()
    committed = threading.Semaphore(0)
    with jobs.streaming(CommitHooks(after_commit=released(committed))):
        with parts.connect(autocommit=False) as reader:
            reader.execute("select count(*) from p").fetchall()
            detach = threading.Thread(
                target=parts.execute, args=["alter table p detach partition p_eu concurrently"], daemon=True
            )
            detach.start()
            parts.awaited("select from pg_inherits where inhdetachpending")
            jobs.snapshot()
            parts.execute("update p_eu set n = -n")
            assert committed.acquire(timeout=60)
            reader.rollback()
        detach.join(60)
        parts.execute("update p_eu set n = n - 1 where id = 2")
    jobs.settle()
    jobs.assert_equal("public.p", "public.p_eu")
    jobs.close()


def test_a_delayed_catalog_read_ends_no_table_registered_meanwhile(
    jobs: PostgresJobs, orders: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ingest.sources.postgres.postgres_connection.LOCK_TIMEOUT", "60s")
    jobs.settle()
    dsn = jobs.source.dsn.get_secret_value()
    link = LazyConnection(dsn, 10.0, lambda _: None)
    with orders.connect(autocommit=False) as altering, connect(dsn) as other, ThreadPoolExecutor() as pool:
        altering.execute("lock table orders in access exclusive mode")
        look = pool.submit(CatalogSync(jobs.lake, jobs.source, link).sync_all)
        orders.lock_awaited("orders")
        orders.execute(
            f'create table later (id int primary key); alter publication "{jobs.source.publication}" add table later'
        )
        ((oid,),) = orders.execute("select 'later'::regclass::oid::bigint")
        later = catalog_tables.read_table(other, oid)
        assert later is not None
        assert jobs.lake.tables.upsert(jobs.source.name, [later.to_source_table(jobs.source.name)])
        altering.commit()
        look.result(60)
    link.close()
    assert jobs.table("public.later").state == QUEUED
    jobs.settle()
    jobs.assert_equal("public.orders", "public.later")


def test_columns_changed_while_a_table_is_unreadable_are_not_mistaken(
    lake: Lake, new_source: Callable[..., PostgresSource], settings: JobSettings, orders: Database, role: str
) -> None:
    orders.execute(f"create publication given for table orders; alter role {role} replication")
    orders.execute(f"grant select on orders to {role}")
    source = new_source(dsn=psycopg.conninfo.make_conninfo(orders.dsn, user=role), publication="given")
    jobs = PostgresJobs(lake, source, settings)
    jobs.settle()
    orders.execute(f"revoke select on orders from {role}; alter table orders rename n to m; update orders set m = 7")
    jobs.stream()
    jobs.snapshot()
    assert jobs.table("public.orders").state == QUEUED
    orders.execute(f"grant select on orders to {role}")
    jobs.settle()
    jobs.assert_equal("public.orders")
    jobs.close()


# Values


TYPES = {
    "smallint": "-32768",
    "bigint": "9223372036854775807",
    "numeric": "'NaN', '123456789012345678901234567890.123456789', 'Infinity'",
    "numeric(10,2)": "'-0.50'",
    "real": "'1e-45', 'NaN', '-Infinity', '0.1'",
    "double precision": "'5e-324', '-0', '0.1', '1e300'",
    "money": "'-12345.67'",
    "boolean": "true, false",
    "text": r"'', E'\t\n\r\\N\\', 'ä€😀', '\N', '\.'",
    "varchar(5)": "'abc'",
    "character(5)": "'ab'",
    '"char"': "'x', ''",
    "name": "'a name'",
    "bytea": r"'\x00ff5c', ''",
    "date": "'infinity', '0044-03-15 BC', '2026-02-28'",
    "time": "'24:00', '00:00:00.000001'",
    "timetz": "'24:00+14', '12:00-15:59'",
    "timestamp": "'-infinity', '0001-01-01 00:00:00 BC', '2026-03-29 02:30:00.123456'",
    "timestamptz": "'infinity', '2026-03-29 02:30:00.1+05:45', '4713-01-01 00:00 BC'",
    "interval": "'-1 year 2 months -3 days 04:05:06.7', '0'",
    "uuid": "'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'",
    "json": """'{"b": 1,  "a":[]}', 'null'""",
    "jsonb": """'{"b": 1, "a": []}', 'null'""",
    "xml": "'<a/>'",
    "inet": "'10.0.0.1', '10.0.0.0/8', '::1'",
    "cidr": "'10.0.0.0/8'",
    "macaddr": "'08:00:2b:01:02:03'",
    "bit(3)": "'101'",
    "bit varying": "'1', ''",
    "point": "'(0.1,-2)'",
    "box": "'(1,1),(0,0)'",
    "path": "'[(0,0),(1,1)]'",
    "circle": "'<(0,0),1>'",
    "tsvector": "'a:1 b:2A'",
    "tsquery": "'a & !b'",
    "pg_lsn": "'16/B374D848'",
    "oid": "4294967295",
    "regclass": "'pg_class'",
    "int[]": "'{}', '{1,NULL,3}', '[0:1]={1,2}', '{{1,2},{3,4}}'",
    "text[]": """'{"a,b","","NULL",NULL,"\\"q\\""}'""",
    "int4range": "'[1,5)', 'empty', '(,)'",
    "tstzrange": """'["2026-01-01 00:00+00",)'""",
    "nummultirange": "'{[1,2),[3,4]}'",
    "mood": "'sad', 'it''s ok'",
    "posint": "5",
    "pair": """'(1,"a,b")', '(,)'""",
    "hash": "'7'",
}


def test_values_are_printed_alike_by_snapshot_and_stream(jobs: PostgresJobs, database: Database) -> None:
    name = database.name
    for setting in (
        "datestyle = 'SQL, DMY'",
        "timezone = 'Asia/Kathmandu'",
        "intervalstyle = 'iso_8601'",
        "bytea_output = 'escape'",
        "extra_float_digits = '-5'",
    ):
        database.execute(f"alter database {name} set {setting}")
    database.execute(
        "create type mood as enum ('sad', 'it''s ok'); create domain posint as int check (value > 0);"
        "create type pair as (a int, b text); create domain hash as posint;"
        "create table typed (id serial primary key, kind text, "
        + ", ".join(f"c{n} {kind}" for n, kind in enumerate(TYPES))
        + ")"
    )
    database.execute("alter type mood add value 'new'")
    jobs.open()
    has_xml = database.execute("select from pg_config where name = 'CONFIGURE' and setting ~ '--with-libxml'")
    inserts = [
        f"insert into typed (kind, c{n}) values ($k${kind}$k$, {value})"
        for n, (kind, values) in enumerate(TYPES.items())
        for value in _split(values)
        if kind != "xml" or has_xml
    ]
    database.execute("; ".join(inserts))
    database.execute("insert into typed (kind, c45) values ('added', 'new')".replace("c45", _column("mood")))
    jobs.settle()
    streamed = {e["columns"]["id"]: e["columns"] for e in jobs.events()}
    snapshot = {r["columns"]["id"]: r["columns"] for r in jobs.snapshot_rows(jobs.table("public.typed"))}
    assert snapshot.keys() <= streamed.keys()
    assert {key: streamed[key] for key in snapshot} == snapshot
    jobs.assert_equal("public.typed")
    jobs.queue("public.typed")
    jobs.settle()
    again = {r["columns"]["id"]: r["columns"] for r in jobs.snapshot_rows(jobs.table("public.typed"))}
    assert again == streamed


def _split(values: str) -> list[str]:
    """The literals in a list, which have commas in them too."""
    parts, quoted = [""], False
    for c in values:
        quoted ^= c == "'"
        if c == "," and not quoted:
            parts.append("")
        else:
            parts[-1] += c
    return [part.strip() for part in parts]


def _column(kind: str) -> str:
    return f"c{list(TYPES).index(kind)}"


# Altered back and forth, or between two catalog reads


@pytest.mark.parametrize(
    ("there", "back"),
    [
        ("alter table orders drop constraint orders_pkey", "alter table orders add primary key (id)"),
        ("alter table orders replica identity nothing", "alter table orders replica identity default"),
    ],
)
def test_events_streamed_without_a_key_are_read_again_with_the_key(
    lake: Lake, source: PostgresSource, settings: JobSettings, orders: Database, there: str, back: str
) -> None:
    jobs = PostgresJobs(lake, source, settings.model_copy(update={"catalog_poll_seconds": 30.0}))
    jobs.settle()
    orders.execute(f"{there}; insert into orders values (77, 'x', 7)")
    jobs.stream()
    jobs.snapshot()
    orders.execute(f"{back}; update orders set n = 0 where id = 1")
    jobs.settle()
    jobs.assert_equal("public.orders")


@contextmanager
def streamed_until_killed(jobs: PostgresJobs, after_store: Callable[[Batch], None]) -> Iterator[Future[Progress]]:
    """The stream, which reads the catalog only for the tables of its events."""
    position = jobs.positions()[1]
    settings = jobs.settings.model_copy(update={"catalog_poll_seconds": 300.0})
    feed = PostgresFeed(jobs.lake, jobs.source, settings, position)
    writer = StreamWriter(jobs.lake, feed, position, settings, CommitHooks(after_store=after_store))
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(writer.run)


def test_events_of_a_replaced_generation_survive_a_kill(jobs: PostgresJobs, orders: Database) -> None:
    jobs.settle()
    full, default = (f"alter table orders replica identity {identity}" for identity in ("full", "default"))
    committed = threading.Semaphore(0)

    def end(batch: Batch) -> None:
        committed.release()
        if orders.execute("select 1 from orders where id = 77"):
            orders.execute(full)
            raise Killed

    with streamed_until_killed(jobs, end) as running:
        orders.execute("update orders set n = 0 where id = 1")
        assert committed.acquire(timeout=60)
        orders.execute(full)
        jobs.snapshot()
        assert jobs.table("public.orders").replica_identity == "f"
        orders.execute(f"{default}; insert into orders values (77, 'x', 7)")
        with pytest.raises(Killed):
            running.result()
    jobs.settle()
    jobs.assert_equal("public.orders")


def test_events_under_a_roots_old_name_survive_a_kill(jobs: PostgresJobs, parts: Database) -> None:
    jobs.settle()
    committed, is_read = threading.Semaphore(0), threading.Event()

    def end(batch: Batch) -> None:
        committed.release()
        if is_read.is_set() and batch.rows:
            raise Killed

    with streamed_until_killed(jobs, end) as running:
        parts.execute("update p set n = 0 where id = 1")
        assert committed.acquire(timeout=60)
        parts.execute("alter table p rename to q")  # of which the log says nothing
        jobs.snapshot()
        is_read.set()
        parts.execute("insert into q values (77, 'eu', 7)")
        with pytest.raises(Killed):
            running.result()
    jobs.settle()
    jobs.assert_equal("public.q")


@pytest.mark.parametrize(
    "statements",
    [
        (
            "alter table orders replica identity full",
            "alter table orders replica identity default; insert into orders values (77, 'x', 7)",
            "alter table orders replica identity full",
        ),
        (
            "select",
            "alter table orders rename n to m; update orders set m = 77 where id = 5; alter table orders rename m to n",
            "select",
        ),
    ],
    ids=["identity", "column"],
)
@pytest.mark.parametrize("is_killed", [False, True])
def test_events_streamed_while_a_snapshot_begins_are_kept(
    jobs: PostgresJobs, orders: Database, statements: tuple[str, str, str], is_killed: bool
) -> None:
    """The snapshot has its LSN, which no other process knows before it is stored."""
    before, meanwhile, after = statements
    jobs.settle()

    def work() -> None:
        orders.execute(meanwhile)
        if is_killed:
            with pytest.raises(Killed):
                jobs.stream(CommitHooks(after_store=kill))
        else:
            jobs.stream()
        orders.execute(after)

    orders.execute(before)
    jobs.queue("public.orders")
    jobs.snapshot(SnapshotHooks(after_plan=call_once(work)))
    jobs.settle()
    jobs.assert_equal("public.orders")


@pytest.mark.parametrize(
    "table",
    [
        "create table x (id int primary key, n int)",
        "create table x (id int primary key, n int) partition by range (id); create table x_1 partition of x default",
    ],
    ids=["plain", "partitioned"],
)
def test_changes_of_a_table_while_it_was_a_partition_are_kept(
    jobs: PostgresJobs, database: Database, table: str
) -> None:
    """The stream alone looks meanwhile; snapshots are taken now and then."""
    database.execute(
        "create table p (id int primary key, n int) partition by range (id);"
        "create table p_0 partition of p for values from (0) to (10); insert into p values (1, 1)"
    )
    database.execute(f"{table}; insert into x values (11, 1), (12, 1)")
    jobs.settle()
    committed = threading.Semaphore(0)
    with jobs.streaming(CommitHooks(after_store=released(committed))):
        database.execute("alter table p attach partition x for values from (10) to (20)")
        database.execute("update x set n = 77 where id = 11; insert into x values (13, 1); delete from x where id = 12")
        assert committed.acquire(timeout=60)
        database.execute("alter table p detach partition x")
    jobs.settle()
    jobs.assert_equal("public.p", "public.x")


def test_a_poll_that_races_with_ddl_is_repeated(
    jobs: PostgresJobs, orders: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs.settle()
    put = SourceTables.upsert

    def move(source: str) -> None:
        (row,) = jobs.lake.tables.read(source).values()
        assert put(jobs.lake.tables, source, [row.with_changes(writer=2)])  # as `tidemark set-writers` does

    move_once = call_once(lambda: move(jobs.source.name))

    def later(self: SourceTables, source: str, rows: Sequence[SourceTable]) -> list[SourceTable]:
        if any(row.state == QUEUED for row in rows):
            move_once([])
        return put(self, source, rows)

    orders.execute("alter table orders rename n to m; update orders set m = 77 where id = 5")
    monkeypatch.setattr(SourceTables, "upsert", later)
    jobs.stream()
    monkeypatch.undo()
    assert jobs.table("public.orders").rev > 3
    orders.execute("alter table orders rename m to n")
    jobs.settle()
    jobs.assert_equal("public.orders")


def test_a_stream_that_waits_for_a_lock_can_be_stopped(
    jobs: PostgresJobs, orders: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ingest.sources.postgres.postgres_connection.LOCK_TIMEOUT", "200ms")
    orders.execute("create table other (id int primary key)")
    jobs.settle()
    committed = threading.Semaphore(0)
    position = jobs.positions()[1]
    quiet = jobs.settings.model_copy(update={"catalog_poll_seconds": 300.0, "commit_interval_seconds": 3.0})
    decoded = threading.Event()

    class Watched(PostgresFeed):
        def read(self, timeout: float) -> EventBatch | StreamReset | None:
            batch = super().read(timeout)
            if isinstance(batch, EventBatch) and "insert" in batch.events["op"].to_pylist()[-1:]:
                decoded.set()
            return batch

    feed = Watched(jobs.lake, jobs.source, quiet, position)
    writer = StreamWriter(jobs.lake, feed, position, quiet, CommitHooks(after_store=released(committed)))
    with ThreadPoolExecutor(1) as pool, orders.connect(autocommit=False) as locking:
        running = pool.submit(writer.run)
        orders.execute("begin; insert into other values (1); update orders set n = 0 where id = 1; commit")
        assert committed.acquire(timeout=60)
        orders.execute("alter table orders replica identity full")
        jobs.snapshot()
        orders.execute("alter table orders replica identity default; insert into orders values (77, 'x', 7)")
        assert decoded.wait(60)
        locking.execute("lock table other in access exclusive mode")  # as VACUUM FULL does
        orders.lock_awaited("other")
        writer.stop()
        running.result(60)
    jobs.settle()
    jobs.assert_equal("public.orders", "public.other")


def test_a_table_moved_into_a_published_schema_gets_a_new_snapshot(
    lake: Lake, new_source: Callable[..., PostgresSource], settings: JobSettings, orders: Database
) -> None:
    orders.execute("create schema other; create publication everything for tables in schema public")
    jobs = PostgresJobs(lake, new_source(publication="everything"), settings)
    jobs.settle()
    before = jobs.table("public.orders")
    orders.execute("update orders set n = 0; alter table orders set (fillfactor = 70); analyze orders")
    jobs.settle()
    assert jobs.table("public.orders").snapshot_id == before.snapshot_id
    orders.execute("alter table orders set schema other; update other.orders set n = 7")
    orders.execute("alter table other.orders set schema public; delete from orders where id = 1")
    jobs.settle()
    jobs.assert_equal("public.orders")
    jobs.close()


def test_new_partitions_of_a_published_schema_need_no_snapshot(
    lake: Lake, new_source: Callable[..., PostgresSource], settings: JobSettings, parts: Database
) -> None:
    parts.execute("create publication everything for tables in schema public")
    jobs = PostgresJobs(lake, new_source(publication="everything"), settings)
    jobs.settle()
    before = jobs.table("public.p").snapshot_id
    for number in range(6):
        parts.execute(f"create table p_{number} partition of p for values in ('{number}')")
    jobs.settle()
    parts.execute("insert into p values (99, '3', 1)")
    jobs.settle()
    jobs.assert_equal("public.p")
    assert jobs.table("public.p").snapshot_id == before
    jobs.close()


def test_tables_of_a_renamed_schema_get_one_new_snapshot(
    lake: Lake, new_source: Callable[..., PostgresSource], settings: JobSettings, database: Database
) -> None:
    """Postgres 15 sends no message about it."""
    database.execute("create schema s; create table s.orders (id int primary key, n int)")
    database.execute("insert into s.orders values (1, 1)")
    jobs = PostgresJobs(lake, new_source(tables=("s.*", "t.*")), settings)
    jobs.settle()
    committed = threading.Semaphore(0)
    snapshots = set()
    with jobs.streaming(CommitHooks(after_store=released(committed))):
        database.execute("update s.orders set n = 2")
        assert committed.acquire(timeout=60)
        database.execute("alter schema s rename to t")
        for n in range(4):
            jobs.snapshot()
            snapshots.add(jobs.table("t.orders").snapshot_id)
            database.execute(f"update t.orders set n = {n + 10}")
            assert committed.acquire(timeout=60)
    jobs.settle()
    jobs.assert_equal("t.orders")
    assert len(snapshots) <= 2
    jobs.close()


def test_a_locked_table_does_not_block_changes_of_others(jobs: PostgresJobs, orders: Database) -> None:
    orders.execute("create table other (id int primary key)")
    jobs.settle()
    committed = threading.Semaphore(0)
    with orders.connect(autocommit=False) as locking, jobs.streaming(CommitHooks(after_store=released(committed))):
        orders.execute("update orders set n = 0 where id = 1")
        assert committed.acquire(timeout=60)
        locking.execute("lock table other in access exclusive mode")  # as VACUUM FULL does, for hours
        # So that its Relation message comes again.
        orders.execute("alter table orders add column added int")
        orders.execute("update orders set n = 0 where id = 2")
        assert committed.acquire(timeout=60)
        locking.rollback()
    jobs.settle()
    jobs.assert_equal("public.orders")


def test_a_table_without_its_key_causes_no_catalog_reads_for_others(
    jobs: PostgresJobs, orders: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders.execute("create table other (id int primary key)")
    jobs.settle()
    committed, looks, read_table = threading.Semaphore(0), Counter[int](), catalog_tables.read_table

    def counted(connection: Connection, oid: int) -> CatalogTable | None:
        looks[oid] += 1
        return read_table(connection, oid)

    with jobs.streaming(CommitHooks(after_store=released(committed))):
        orders.execute("begin; insert into other values (1); update orders set n = 0 where id = 1; commit")
        assert committed.acquire(timeout=60)
        orders.execute("alter table orders drop constraint orders_pkey; insert into orders values (77, 'x', 7)")
        assert committed.acquire(timeout=60)
        jobs.snapshot()
        orders.execute("insert into other values (2)")
        assert committed.acquire(timeout=60)
        monkeypatch.setattr(catalog_tables, "read_table", counted)
        for number in range(3, 13):
            orders.execute(f"insert into other values ({number})")
            assert committed.acquire(timeout=60)
    assert not looks


_UNHEARD = "delete from orders where id = 1; update orders set n = 0 where id = 2"


def test_changed_publication_options_need_new_snapshots(jobs: PostgresJobs, orders: Database) -> None:
    jobs.settle()
    options = f"alter publication {jobs.source.publication} set (publish = "
    orders.execute(f"{options} 'insert')")
    orders.execute(_UNHEARD)
    orders.execute(f"{options} 'insert, update, delete, truncate')")
    jobs.settle()
    jobs.assert_equal("public.orders")


def test_tables_of_a_publication_renamed_and_back_get_new_snapshots(jobs: PostgresJobs, orders: Database) -> None:
    jobs.settle()
    name = jobs.source.publication
    orders.execute(f"alter publication {name} rename to {name}_x")
    orders.execute(_UNHEARD)
    orders.execute(f"alter publication {name}_x rename to {name}")
    if orders.version < 18:  # looks it up as of each change, and can't go on where it had another name
        with pytest.raises(Failure, match=r"does not exist.*resnapshot --all"):
            jobs.settle()
        start_over(jobs.lake, jobs.source, jobs.settings)
    jobs.settle()
    jobs.assert_equal("public.orders")


def test_tables_with_the_same_unquoted_name_are_left_out_and_reported(
    jobs: PostgresJobs, orders: Database, caplog: pytest.LogCaptureFixture
) -> None:
    orders.execute('create schema "public.a"; create table "public.a".b (id int primary key)')
    orders.execute('create table "a.b" (id int primary key)')
    jobs.settle()
    assert "public.a.b is left out: another table has the same unquoted name" in caplog.text
    jobs.assert_equal("public.orders")


def test_a_publication_that_leaves_out_changes_is_refused(jobs: PostgresJobs, orders: Database) -> None:
    jobs.settle()
    orders.execute(f"alter publication {jobs.source.publication} set (publish = 'insert')")
    with pytest.raises(Failure, match="does not send all kinds of changes"):
        jobs.snapshot()
