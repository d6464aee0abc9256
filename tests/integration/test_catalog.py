"""The catalogue moves: after each alteration the lake's table equals the source's, by the cheapest sound means."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import psycopg
import pytest

from ingest.change import EventBatch
from ingest.config import PostgresSource
from ingest.errors import Failure
from ingest.lake import Lake
from ingest.lake.tables import DONE, ENDED, QUEUED, SourceTable, SourceTables
from ingest.positions import Restart
from ingest.postgres import catalog
from ingest.postgres.catalog import CatalogTable
from ingest.postgres.connection import Connection, Link, connect
from ingest.postgres.feed import PostgresFeed
from ingest.postgres.startover import start_over
from ingest.postgres.survey import Survey
from ingest.settings import JobSettings
from ingest.snapshot import SnapshotHooks
from ingest.stream import Hooks, Landing, Progress, StreamWriter
from tests.conftest import Database
from tests.integration.replay import Jobs, Killed, call_once

pytestmark = pytest.mark.slow


@pytest.fixture
def orders(database: Database) -> Database:
    database.execute(
        "create table orders (id int primary key, note text, n int);"
        "insert into orders select i, 'note ' || i, i from generate_series(1, 20) i"
    )
    return database


_SWAP = "alter table orders rename note to x; alter table orders rename n to note; alter table orders rename x to n"


def released(landed: threading.Semaphore) -> Callable[[Landing], None]:
    """A hook that says that rows were landed."""

    def tell(landing: Landing) -> None:
        if landing.rows:
            landed.release()

    return tell


def alter(jobs: Jobs, database: Database, statement: str) -> bool:
    """Alter `orders` between changes of it; whether that took a new snapshot."""
    jobs.settle()
    before = jobs.table("public.orders")
    database.execute("update orders set n = n + 1 where id = 1")
    database.execute(statement)
    database.execute("update orders set n = n + 1 where id = 2; delete from orders where id = 3")
    jobs.settle()
    jobs.assert_equal("public.orders")
    return jobs.table("public.orders").snapshot_id != before.snapshot_id


@pytest.mark.parametrize(
    "statement",
    [
        "alter table orders add extra text",
        "alter table orders drop note",
        "alter table orders alter note type varchar",
        "vacuum full orders",
        "alter table orders alter n set default 7",
        "create index on orders (note)",
        "alter table orders alter n set statistics 7",
        "truncate orders; insert into orders values (1, 'a', 1), (2, 'b', 2)",
    ],
)
def test_what_the_log_tells_needs_no_snapshot(jobs: Jobs, orders: Database, statement: str) -> None:
    assert not alter(jobs, orders, statement)


@pytest.mark.parametrize(
    "statement",
    [
        "alter table orders add extra text default 'x'",
        "alter table orders add extra timestamptz default clock_timestamp()",
        "alter table orders rename note to remark",
        "alter table orders alter n type numeric using n / 10.0",
        "alter table orders alter n type int using n * 10",
        "alter table orders alter note type varchar(99)",
        "begin; alter table orders drop note; alter table orders add note text; commit",
        "alter table orders add g int generated always as (n * 2) stored, add extra text default 'x'",
    ],
)
def test_what_it_does_not_tell_takes_a_new_snapshot(jobs: Jobs, orders: Database, statement: str) -> None:
    assert alter(jobs, orders, statement)


def test_the_snapshot_is_queued_before_the_first_row_of_the_new_shape_lands(jobs: Jobs, orders: Database) -> None:
    jobs.settle()
    orders.execute("alter table orders alter n type bigint; update orders set n = 2^40 where id = 1")
    jobs.stream()  # no snapshotter runs
    assert jobs.table("public.orders").state == "queued"
    jobs.settle()
    jobs.assert_equal("public.orders")


FILLED = "alter table orders add c uuid default gen_random_uuid()"


def test_an_alteration_that_commits_during_a_look_is_not_seen_by_halves(jobs: Jobs, orders: Database) -> None:
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


def test_a_look_for_the_stream_waits_for_who_alters_the_table(orders: Database) -> None:
    ((oid,),) = orders.execute("select 'orders'::regclass::oid::bigint")
    with connect(orders.dsn) as looking, ThreadPoolExecutor() as pool, orders.connect(autocommit=False) as altering:
        before = catalog.table_of(looking, oid)
        altering.execute(FILLED)
        look = pool.submit(catalog.table_of, looking, oid)
        orders.lock_awaited("orders")
        altering.commit()
        after = look.result(60)
    assert before is not None
    assert after is not None
    assert [c.name for c in after.columns] == ["id", "note", "n", "c"]
    assert after.leaves[0].storage != before.leaves[0].storage


def test_a_table_that_was_unlogged_is_read_anew(
    lake: Lake, settings: JobSettings, new_source: Callable[..., PostgresSource], orders: Database
) -> None:
    orders.execute("create publication everything for all tables")
    jobs = Jobs(lake, new_source(publication="everything"), settings)
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
    "statement",
    [
        "alter table orders replica identity full",
        (
            "create unique index u on orders (n); alter table orders alter n set not null;"
            "alter table orders replica identity using index u"
        ),
        "alter table orders drop constraint orders_pkey; alter table orders add primary key (n, id)",
    ],
)
def test_another_identity_is_another_generation(jobs: Jobs, orders: Database, statement: str) -> None:
    jobs.settle()
    before = jobs.table("public.orders")
    orders.execute("update orders set note = 'before' where id < 3")
    orders.execute(statement)
    orders.execute("update orders set note = 'after' where id > 3; delete from orders where id = 1")
    jobs.settle()
    after = jobs.table("public.orders")
    assert after.table_id != before.table_id
    assert jobs.lake.tables.read(jobs.source.name)[before.table_id].state == ENDED
    jobs.assert_equal("public.orders")
    orders.execute("update orders set note = 'last' where id = 5")
    jobs.stream()
    jobs.assert_equal("public.orders")


def test_an_identity_switched_to_and_fro_is_read_anew(jobs: Jobs, orders: Database) -> None:
    jobs.settle()
    before = jobs.table("public.orders")
    orders.execute("alter table orders replica identity full")
    jobs.settle()
    orders.execute("delete from orders where id = 1")
    orders.execute("alter table orders replica identity default")
    jobs.settle()
    assert jobs.table("public.orders").table_id == before.table_id
    jobs.assert_equal("public.orders")


def test_a_table_dropped_and_created_again_is_another_generation(jobs: Jobs, orders: Database) -> None:
    jobs.settle()
    before = jobs.table("public.orders")
    orders.execute("drop table orders; create table orders (id int primary key, other date)")
    orders.execute("insert into orders values (1, '2026-01-01')")
    jobs.settle()
    ended = jobs.lake.tables.read(jobs.source.name)[before.table_id]
    assert ended.state == ENDED
    assert ended.ended_lsn is not None
    jobs.assert_equal("public.orders")


def test_a_table_renamed_away_ends_and_one_renamed_in_is_taken(
    lake: Lake,
    settings: JobSettings,
    new_source: Callable[..., PostgresSource],
    orders: Database,
) -> None:
    orders.execute("create table elsewhere (id int primary key); insert into elsewhere values (1)")
    jobs = Jobs(lake, new_source(tables=("public.o*",)), settings)
    jobs.settle()
    orders.execute("alter table orders rename to was_orders; update was_orders set n = 0")
    orders.execute("alter table elsewhere rename to others; insert into others values (2)")
    jobs.settle()
    states = {t.table_name: t.state for t in lake.tables.read(jobs.source.name).values()}
    assert states == {"public.orders": ENDED, "public.others": DONE}
    jobs.assert_equal("public.others")
    jobs.close()


@pytest.mark.parametrize(
    "away",
    [
        "alter publication p drop table orders; alter table orders rename to orders_old",
        "alter table orders rename to orders_old; alter table orders_old drop constraint orders_pkey",
    ],
)
def test_a_table_renamed_away_that_is_not_replicated_under_its_new_name_leaves_the_old_one_to_its_successor(
    lake: Lake, settings: JobSettings, new_source: Callable[..., PostgresSource], orders: Database, away: str
) -> None:
    orders.execute("create publication p for table orders")
    jobs = Jobs(lake, new_source(publication="p", tables=("public.orders*",)), settings)
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


def test_a_table_made_later_is_published_and_taken(jobs: Jobs, orders: Database) -> None:
    jobs.settle()
    orders.execute("create table later (id int primary key); insert into later values (1)")
    jobs.settle()
    orders.execute("insert into later values (2)")
    jobs.stream()
    jobs.assert_equal("public.orders", "public.later")


def test_one_that_left_the_publication_is_kept_and_read_anew_when_it_is_back(
    jobs: Jobs, orders: Database, caplog: pytest.LogCaptureFixture
) -> None:
    orders.execute("create table other (id int primary key)")
    jobs.settle()
    before = jobs.table("public.orders")
    publication = jobs.source.publication
    orders.execute(f'alter publication "{publication}" drop table orders')
    orders.execute("delete from orders where id = 1")
    jobs.settle()
    assert jobs.table("public.orders") == before
    assert "public.orders is left out: it is not in publication" in caplog.text
    orders.execute(f'alter publication "{publication}" add table orders')
    jobs.settle()
    assert jobs.table("public.orders").snapshot_id != before.snapshot_id
    jobs.assert_equal("public.orders")


def test_an_existing_publication_is_used_with_its_columns_and_rows(
    lake: Lake,
    settings: JobSettings,
    new_source: Callable[..., PostgresSource],
    orders: Database,
) -> None:
    orders.execute(
        "create publication part for table orders (id, n) where (id > 5);create table unpublished (id int primary key)"
    )
    jobs = Jobs(lake, new_source(publication="part"), settings)
    jobs.settle()
    assert [c.name for c in jobs.table("public.orders").columns] == ["id", "n"]
    orders.execute("update orders set n = 100")
    jobs.stream()
    assert len(jobs.events()) == 15
    ((kept,),) = orders.execute("select array_agg(array[id, n]::text[] order by id) from orders where id > 5")
    assert sorted(jobs.lake_rows("public.orders"), key=lambda r: int(r[0] or 0)) == [tuple(r) for r in kept]
    jobs.close()


def test_partitions_under_their_root_are_refused_with_what_to_do(
    lake: Lake,
    settings: JobSettings,
    new_source: Callable[..., PostgresSource],
    orders: Database,
) -> None:
    orders.execute("create publication rooted for table orders with (publish_via_partition_root)")
    with pytest.raises(Failure, match="publish_via_partition_root = false"):
        Jobs(lake, new_source(publication="rooted"), settings).settle()


@pytest.mark.both_versions
def test_generated_columns_are_in_neither(jobs: Jobs, database: Database) -> None:
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


def test_partitions_whose_identities_have_other_keys_are_left_out_and_named(
    jobs: Jobs, parts: Database, caplog: pytest.LogCaptureFixture
) -> None:
    parts.execute(
        "create unique index on p_eu (id); create unique index on p_us (id, region);"
        "alter table p_eu replica identity using index p_eu_id_idx;"
        "alter table p_us replica identity using index p_us_id_region_idx;"
        "create table kept (id int primary key)"
    )
    jobs.settle()
    parts.execute("update p set n = -n")
    jobs.settle()
    assert {t.table_name for t in jobs.lake.tables.read(jobs.source.name).values()} == {"public.kept"}
    assert "public.p is left out: its partitions differ in their replica identity" in caplog.text


def test_partitions_whose_keys_are_not_their_roots_are_left_out(
    jobs: Jobs, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """A row of one may have the key of another's."""
    database.execute("create table p (id int not null, region text) partition by list (region)")
    for region in ("eu", "us"):
        database.execute(
            f"create table p_{region} partition of p for values in ('{region}');"
            f"create unique index {region}_id on p_{region} (id);"
            f"alter table p_{region} replica identity using index {region}_id; insert into p values (1, '{region}')"
        )
    database.execute("create table kept (id int primary key)")
    jobs.settle()
    assert {t.table_name for t in jobs.lake.tables.read(jobs.source.name).values()} == {"public.kept"}
    assert "public.p is left out: it has no replica identity" in caplog.text


def test_partitions_may_have_an_identity_that_their_root_does_not(jobs: Jobs, parts: Database) -> None:
    parts.execute(
        "create unique index on p_eu (region, id); create unique index on p_us (id, region);"
        "alter table p_eu replica identity using index p_eu_region_id_idx;"
        "alter table p_us replica identity using index p_us_id_region_idx"
    )
    jobs.settle()
    parts.execute("update p set n = -n; update p set region = 'us' where id = 2; delete from p where id = 4")
    jobs.stream()
    jobs.assert_equal("public.p")


def test_partitions_land_under_their_root(jobs: Jobs, parts: Database) -> None:
    jobs.settle()
    parts.execute("update p set n = -n where id < 5; update p set region = 'us' where id = 2")
    parts.execute("truncate p_eu; insert into p values (100, 'eu', 1)")
    jobs.stream()
    assert {e["table_name"] for e in jobs.events()} == {"public.p"}
    assert len({e["leaf_id"] for e in jobs.events()}) == 2
    jobs.assert_equal("public.p")


def test_a_root_is_renamed_while_its_partitions_are_streamed(jobs: Jobs, parts: Database) -> None:
    jobs.settle()
    landed = threading.Semaphore(0)
    with jobs.streaming(Hooks(after_land=lambda _: landed.release())):
        parts.execute("update p set n = -1 where id = 1")
        assert landed.acquire(timeout=60)
        parts.execute("alter table p rename to q")
        jobs.snapshot()
        assert jobs.table("public.q").state == DONE
        parts.execute("update q set n = -3 where id = 3")
        assert landed.acquire(timeout=60)
        deadline = time.monotonic() + 60
        while jobs.table("public.q").state == DONE and time.monotonic() < deadline:
            time.sleep(0.05)
    jobs.settle()
    jobs.assert_equal("public.q")


def test_a_partition_that_is_not_changed_after_a_column_was_renamed_asks_for_no_more_snapshots(
    jobs: Jobs, parts: Database
) -> None:
    parts.execute("create table other (id int primary key)")
    jobs.settle()
    full = "alter table other replica identity full"
    landed = threading.Semaphore(0)
    with jobs.streaming(Hooks(after_land=lambda _: landed.release())):
        for statement in (
            "update p set n = -n",  # the stream has heard of both, of p_us last
            "alter table p rename n to m; update p set m = 6 where region = 'eu'",
            # For this all tables are described again, p_us as it was.
            f"{full}; insert into other values (1); alter table other replica identity default",
        ):
            for each in statement.split(";"):
                parts.execute(each)
            assert landed.acquire(timeout=60)
            jobs.snapshot()
        before = jobs.table("public.p")
        parts.execute("update p set m = 7 where region = 'eu'")
        assert landed.acquire(timeout=60)
        assert jobs.table("public.p") == before
    assert before.state == DONE
    jobs.assert_equal("public.p")


@pytest.mark.parametrize(
    ("statement", "again"),
    [
        ("create table p_as partition of p for values in ('as')", False),
        (
            (
                "create table p_as (like p including all); insert into p_as values (50, 'as', 1);"
                "alter table p attach partition p_as for values in ('as')"
            ),
            True,
        ),
        (
            (
                "alter table p detach partition p_eu; update p_eu set n = -n;"
                "alter table p attach partition p_eu for values in ('eu')"
            ),
            True,
        ),
        ("alter table p detach partition p_eu", True),
        ("drop table p_us", True),
    ],
)
def test_partitions_come_and_go(jobs: Jobs, parts: Database, statement: str, again: bool) -> None:
    jobs.settle()
    before = jobs.table("public.p")
    parts.execute(statement)
    jobs.settle()
    parts.execute("update p set n = n + 1")
    jobs.settle()
    assert (jobs.table("public.p").snapshot_id != before.snapshot_id) == again
    jobs.assert_equal("public.p")


@pytest.mark.parametrize("publication", ["tidemark", "everything"])
def test_a_partition_that_is_being_detached_concurrently_is_a_table_of_its_own(
    lake: Lake, settings: JobSettings, new_source: Callable[..., PostgresSource], parts: Database, publication: str
) -> None:
    if publication == "everything":
        parts.execute("create publication everything for all tables")
    jobs = Jobs(lake, new_source(publication=publication), settings)
    jobs.settle()
    landed = threading.Semaphore(0)
    with jobs.streaming(Hooks(after_land=released(landed))):
        with parts.connect(autocommit=False) as reader:
            reader.execute("select count(*) from p").fetchall()
            detach = threading.Thread(
                target=parts.execute, args=["alter table p detach partition p_eu concurrently"], daemon=True
            )
            detach.start()
            parts.awaited("select from pg_inherits where inhdetachpending")
            jobs.snapshot()
            parts.execute("update p_eu set n = -n")
            assert landed.acquire(timeout=60)
            reader.rollback()
        detach.join(60)
        parts.execute("update p_eu set n = n - 1 where id = 2")
    jobs.settle()
    jobs.assert_equal("public.p", "public.p_eu")
    jobs.close()


def test_a_look_that_waits_does_not_end_what_is_registered_meanwhile(
    jobs: Jobs, orders: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ingest.postgres.connection.LOCK_TIMEOUT", "60s")
    jobs.settle()
    dsn = jobs.source.dsn.get_secret_value()
    link = Link(dsn, 10.0, lambda _: None)
    with orders.connect(autocommit=False) as altering, connect(dsn) as other, ThreadPoolExecutor() as pool:
        altering.execute("lock table orders in access exclusive mode")
        look = pool.submit(Survey(jobs.lake, jobs.source, link).all)
        orders.lock_awaited("orders")
        orders.execute(
            f'create table later (id int primary key); alter publication "{jobs.source.publication}" add table later'
        )
        ((oid,),) = orders.execute("select 'later'::regclass::oid::bigint")
        later = catalog.table_of(other, oid)
        assert later is not None
        assert jobs.lake.tables.put(jobs.source.name, [later.row(jobs.source.name)])
        altering.commit()
        look.result(60)
    link.close()
    assert jobs.table("public.later").state == QUEUED
    jobs.settle()
    jobs.assert_equal("public.orders", "public.later")


def test_columns_that_change_while_a_table_can_not_be_read_are_not_taken_for_the_old_ones(
    lake: Lake, new_source: Callable[..., PostgresSource], settings: JobSettings, orders: Database, role: str
) -> None:
    orders.execute(f"create publication given for table orders; alter role {role} replication")
    orders.execute(f"grant select on orders to {role}")
    source = new_source(dsn=psycopg.conninfo.make_conninfo(orders.dsn, user=role), publication="given")
    jobs = Jobs(lake, source, settings)
    jobs.settle()
    orders.execute(f"revoke select on orders from {role}; alter table orders rename n to m; update orders set m = 7")
    jobs.stream()
    jobs.snapshot()
    assert jobs.table("public.orders").state == QUEUED
    orders.execute(f"grant select on orders to {role}")
    jobs.settle()
    jobs.assert_equal("public.orders")
    jobs.close()


def test_a_table_with_an_unlogged_partition_is_kept_and_read_anew_when_it_is_logged(
    jobs: Jobs, parts: Database, caplog: pytest.LogCaptureFixture
) -> None:
    jobs.settle()
    before = jobs.table("public.p")
    parts.execute("alter table p_eu set unlogged; update p set n = -n")
    jobs.settle()
    kept = jobs.table("public.p")
    assert (kept.state, kept.snapshot_id) == (DONE, before.snapshot_id)
    assert 'public.p is left out: its partition "public"."p_eu" is unlogged' in caplog.text
    parts.execute("alter table p_eu set logged")
    jobs.settle()
    assert jobs.table("public.p").snapshot_id != before.snapshot_id
    jobs.assert_equal("public.p")


def test_a_partitioned_table_without_partitions_is_done_at_once(jobs: Jobs, database: Database) -> None:
    database.execute("create table p (id int primary key) partition by range (id)")
    jobs.settle()
    database.execute("create table p1 partition of p default; insert into p values (1)")
    jobs.settle()
    jobs.assert_equal("public.p")


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


def test_values_are_printed_alike_by_snapshot_and_stream(jobs: Jobs, database: Database) -> None:
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


# Unchanged TOAST


@pytest.mark.parametrize("identity", ["default", "full", "using index toasted_k"])
def test_unchanged_toast_values_are_kept(jobs: Jobs, database: Database, identity: str) -> None:
    database.execute(
        "create table toasted (id int primary key, k int not null, big text, n int);"
        "alter table toasted alter big set storage external;"
        "create unique index toasted_k on toasted (k);"
        f"alter table toasted replica identity {identity};"
        "insert into toasted select i, i, repeat(i::text, 5000), 0 from generate_series(1, 5) i"
    )
    jobs.settle()
    database.execute("update toasted set n = 1 where id = 1")
    with database.connect(autocommit=False) as connection:
        connection.execute("update toasted set n = 2, big = repeat('x', 9000) where id = 2")
        connection.execute("update toasted set n = 3 where id = 2")
    database.execute("update toasted set id = 30, k = 30 where id = 3")
    database.execute("update toasted set k = 40, n = 4 where id = 4")
    database.execute("delete from toasted where id = 5")
    jobs.stream()
    partial = [e for e in jobs.events() if e["partial"]]
    assert bool(partial) == (identity != "full")
    jobs.assert_equal("public.toasted")


# Altered to and fro, or while nobody looks


@pytest.mark.parametrize(
    "statements",
    [
        ("alter table orders replica identity full", "alter table orders replica identity default"),
        ("alter table orders rename to other", "alter table other rename to orders"),
        ("alter table orders drop constraint orders_pkey", "alter table orders add primary key (id)"),
        ("alter table orders rename n to m", "alter table orders rename m to n"),
    ],
    ids=["identity", "name", "key", "column"],
)
def test_what_was_changed_between_two_alterations_that_nobody_saw_is_not_lost(
    jobs: Jobs, orders: Database, statements: tuple[str, str]
) -> None:
    jobs.settle()
    before = jobs.table("public.orders")
    orders.execute(statements[0])
    name = "other" if "other" in statements[0] else "orders"
    orders.execute(f"insert into {name} values (77, 'x', 7)")
    orders.execute(statements[1])
    jobs.settle()
    assert jobs.table("public.orders").table_id == before.table_id
    jobs.assert_equal("public.orders")


def test_a_key_that_is_swapped_step_by_step_while_nobody_looks_is_read_anew_once(jobs: Jobs, orders: Database) -> None:
    jobs.settle()
    orders.execute("alter table orders drop constraint orders_pkey; insert into orders values (77, 'x', 1)")
    orders.execute("alter table orders replica identity full; update orders set n = 5 where id = 77")
    orders.execute("alter table orders add primary key (id); alter table orders replica identity default")
    jobs.settle()
    jobs.assert_equal("public.orders")


def test_a_column_renamed_and_back_in_one_transaction_is_read_anew_only_if_rows_were_changed(
    jobs: Jobs, orders: Database
) -> None:
    jobs.settle()
    before = jobs.table("public.orders")
    orders.execute("begin; alter table orders rename n to m; alter table orders rename m to n; commit")
    orders.execute("update orders set n = 6 where id = 1")
    jobs.settle()
    assert jobs.table("public.orders").snapshot_id == before.snapshot_id
    orders.execute(
        "begin; alter table orders rename n to m; update orders set m = 9 where id = 1; "
        "alter table orders rename m to n; commit"
    )
    jobs.settle()
    assert jobs.table("public.orders").snapshot_id != before.snapshot_id
    jobs.assert_equal("public.orders")


@pytest.mark.parametrize(
    "statements",
    [
        (
            "alter table orders add more int default 5",
            "update orders set note = 7",
            "begin; alter table orders drop more; alter table orders add more int; commit",
        ),
        ("alter table orders add more int", "update orders set more = 5", "alter table orders rename more to most"),
        (
            "alter table orders add more int; update orders set more = 5; alter table orders rename more to most",
            "alter table orders add more int",
        ),
        (_SWAP, "update orders set note = 7 where id < 5", _SWAP),
        (_SWAP, "update orders set note = 7 where id < 5", _SWAP, "update orders set n = 0 where id = 9"),
        (
            "begin; alter table orders rename note to old; alter table orders add note int default 8; commit",
            "update orders set old = 7 where id < 5",
            "begin; alter table orders drop note; alter table orders rename old to note; commit",
        ),
    ],
    ids=[
        "added twice",
        "added and renamed",
        "added, renamed, added",
        "exchanged and back",
        "and changed again",
        "replaced and back",
    ],
)
def test_names_of_columns_that_nobody_saw_change_are_not_confused(
    jobs: Jobs, orders: Database, statements: tuple[str, ...]
) -> None:
    orders.execute("alter table orders alter note type int using n")
    jobs.settle()
    for statement in statements:
        orders.execute(statement)
    jobs.settle()
    jobs.assert_equal("public.orders")


def test_the_values_of_a_column_that_nobody_saw_are_not_those_of_a_later_one(jobs: Jobs, orders: Database) -> None:
    jobs.settle()
    orders.execute("alter table orders add more int; update orders set more = 5; alter table orders drop more")
    jobs.settle()
    orders.execute("alter table orders add more int")
    jobs.settle()
    jobs.assert_equal("public.orders")


@pytest.mark.parametrize(
    ("there", "back"),
    [
        ("alter table orders drop constraint orders_pkey", "alter table orders add primary key (id)"),
        ("alter table orders replica identity nothing", "alter table orders replica identity default"),
    ],
)
def test_what_a_short_run_streamed_of_a_table_without_a_key_is_read_when_it_has_one_again(
    lake: Lake, source: PostgresSource, settings: JobSettings, orders: Database, there: str, back: str
) -> None:
    jobs = Jobs(lake, source, settings.model_copy(update={"catalogue_seconds": 30.0}))
    jobs.settle()
    orders.execute(f"{there}; insert into orders values (77, 'x', 7)")
    jobs.stream()
    jobs.snapshot()
    orders.execute(f"{back}; update orders set n = 0 where id = 1")
    jobs.settle()
    jobs.assert_equal("public.orders")


@contextmanager
def streamed_until_killed(jobs: Jobs, after_store: Callable[[Landing], None]) -> Iterator[Future[Progress]]:
    """The stream, which looks at nothing but what it lands."""
    position = jobs.positions()[1]
    settings = jobs.settings.model_copy(update={"catalogue_seconds": 300.0})
    feed = PostgresFeed(jobs.lake, jobs.source, settings, position)
    writer = StreamWriter(jobs.lake, feed, position, settings, Hooks(after_store=after_store))
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(writer.run)


def test_what_was_streamed_of_a_generation_that_another_process_had_replaced_is_not_lost_by_a_kill(
    jobs: Jobs, orders: Database
) -> None:
    jobs.settle()
    full, default = (f"alter table orders replica identity {identity}" for identity in ("full", "default"))
    landed = threading.Semaphore(0)

    def end(landing: Landing) -> None:
        landed.release()
        if orders.execute("select 1 from orders where id = 77"):
            orders.execute(full)
            raise Killed

    with streamed_until_killed(jobs, end) as running:
        orders.execute("update orders set n = 0 where id = 1")
        assert landed.acquire(timeout=60)
        orders.execute(full)
        jobs.snapshot()
        assert jobs.table("public.orders").replica_identity == "f"
        orders.execute(f"{default}; insert into orders values (77, 'x', 7)")
        with pytest.raises(Killed):
            running.result()
    jobs.settle()
    jobs.assert_equal("public.orders")


def test_what_was_streamed_under_a_roots_old_name_is_not_lost_by_a_kill(jobs: Jobs, parts: Database) -> None:
    jobs.settle()
    landed, is_read = threading.Semaphore(0), threading.Event()

    def end(landing: Landing) -> None:
        landed.release()
        if is_read.is_set() and landing.rows:
            raise Killed

    with streamed_until_killed(jobs, end) as running:
        parts.execute("update p set n = 0 where id = 1")
        assert landed.acquire(timeout=60)
        parts.execute("alter table p rename to q")  # of which the log says nothing
        jobs.snapshot()
        is_read.set()
        parts.execute("insert into q values (77, 'eu', 7)")
        with pytest.raises(Killed):
            running.result()
    jobs.settle()
    jobs.assert_equal("public.q")


def test_duplicates_that_came_and_went_without_a_key_take_no_row_with_them(jobs: Jobs, orders: Database) -> None:
    """With identity FULL every record has all columns, whatever the key is: what it was is told by the key's number."""
    orders.execute("alter table orders replica identity full")
    jobs.settle()
    orders.execute("alter table orders drop constraint orders_pkey")
    orders.execute("insert into orders values (1, 'loaded twice', 0)")
    orders.execute("delete from orders where note = 'loaded twice'")
    orders.execute("alter table orders add primary key (id)")
    jobs.settle()
    jobs.assert_equal("public.orders")


@pytest.mark.parametrize(
    "statement", ["vacuum full orders", "reindex table orders", "reindex table concurrently orders"]
)
def test_a_key_whose_index_is_made_anew_is_the_same(jobs: Jobs, orders: Database, statement: str) -> None:
    orders.execute("alter table orders replica identity full")
    assert not alter(jobs, orders, statement)


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
def test_what_a_short_run_streamed_while_a_snapshot_was_begun_is_not_lost(
    jobs: Jobs, orders: Database, statements: tuple[str, str, str]
) -> None:
    """The snapshot has its stamp, which nobody else knows of before it is told."""
    before, meanwhile, after = statements
    jobs.settle()

    def work() -> None:
        orders.execute(meanwhile)
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
def test_what_was_changed_while_a_table_was_a_partition_is_not_lost(jobs: Jobs, database: Database, table: str) -> None:
    """The stream alone looks meanwhile; snapshots are taken now and then."""
    database.execute(
        "create table p (id int primary key, n int) partition by range (id);"
        "create table p_0 partition of p for values from (0) to (10); insert into p values (1, 1)"
    )
    database.execute(f"{table}; insert into x values (11, 1), (12, 1)")
    jobs.settle()
    landed = threading.Semaphore(0)
    with jobs.streaming(Hooks(after_store=released(landed))):
        database.execute("alter table p attach partition x for values from (10) to (20)")
        database.execute("update x set n = 77 where id = 11; insert into x values (13, 1); delete from x where id = 12")
        assert landed.acquire(timeout=60)
        database.execute("alter table p detach partition x")
    jobs.settle()
    jobs.assert_equal("public.p", "public.x")


def test_a_look_at_a_table_that_others_change_at_that_moment_is_not_forgotten(
    jobs: Jobs, orders: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs.settle()
    put = SourceTables.put

    def move(source: str) -> None:
        (row,) = jobs.lake.tables.read(source).values()
        assert put(jobs.lake.tables, source, [row.after(moving_id=1, moved_lsn=1)])  # as `sharing` does

    move_once = call_once(lambda: move(jobs.source.name))

    def later(self: SourceTables, source: str, rows: Sequence[SourceTable]) -> list[SourceTable]:
        if any(row.state == QUEUED for row in rows):
            move_once([])
        return put(self, source, rows)

    orders.execute("alter table orders rename n to m; update orders set m = 77 where id = 5")
    monkeypatch.setattr(SourceTables, "put", later)
    jobs.stream()
    monkeypatch.undo()
    assert jobs.table("public.orders").moving_id == 1
    orders.execute("alter table orders rename m to n")
    jobs.settle()
    jobs.assert_equal("public.orders")


def test_a_stream_that_waits_for_a_lock_before_it_lands_can_be_told_to_end(
    jobs: Jobs, orders: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ingest.postgres.connection.LOCK_TIMEOUT", "200ms")
    orders.execute("create table other (id int primary key)")
    jobs.settle()
    landed = threading.Semaphore(0)
    position = jobs.positions()[1]
    quiet = jobs.settings.model_copy(update={"catalogue_seconds": 300.0, "landing_seconds": 3.0})
    decoded = threading.Event()

    class Watched(PostgresFeed):
        def read(self, timeout: float) -> EventBatch | Restart | None:
            batch = super().read(timeout)
            if isinstance(batch, EventBatch) and "insert" in batch.events["op"].to_pylist()[-1:]:
                decoded.set()
            return batch

    feed = Watched(jobs.lake, jobs.source, quiet, position)
    writer = StreamWriter(jobs.lake, feed, position, quiet, Hooks(after_store=released(landed)))
    with ThreadPoolExecutor(1) as pool, orders.connect(autocommit=False) as locking:
        running = pool.submit(writer.run)
        orders.execute("begin; insert into other values (1); update orders set n = 0 where id = 1; commit")
        assert landed.acquire(timeout=60)
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


def test_what_was_changed_under_a_name_that_is_not_selected_is_not_lost(
    lake: Lake, new_source: Callable[..., PostgresSource], settings: JobSettings, orders: Database
) -> None:
    jobs = Jobs(lake, new_source(tables=("public.orders",)), settings)
    jobs.settle()
    orders.execute("alter table orders rename to away; insert into away values (77, 'x', 7)")
    orders.execute("alter table away rename to orders")
    jobs.settle()
    jobs.assert_equal("public.orders")


def test_a_name_that_a_dropped_column_had_is_not_taken_for_that(jobs: Jobs, orders: Database) -> None:
    jobs.settle()
    orders.execute("alter table orders drop n; insert into orders values (77, 'x')")
    jobs.settle()
    orders.execute("alter table orders rename note to n; update orders set n = 'y' where id < 5")
    orders.execute("alter table orders rename n to note")
    jobs.settle()
    jobs.assert_equal("public.orders")


def test_a_table_of_a_published_schema_that_was_in_another_is_read_anew(
    lake: Lake, new_source: Callable[..., PostgresSource], settings: JobSettings, orders: Database
) -> None:
    orders.execute("create schema other; create publication everything for tables in schema public")
    jobs = Jobs(lake, new_source(publication="everything"), settings)
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


def test_new_partitions_of_a_published_schema_ask_for_no_snapshot(
    lake: Lake, new_source: Callable[..., PostgresSource], settings: JobSettings, parts: Database
) -> None:
    parts.execute("create publication everything for tables in schema public")
    jobs = Jobs(lake, new_source(publication="everything"), settings)
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


def test_a_schema_that_is_renamed_has_its_tables_read_anew_once(
    lake: Lake, new_source: Callable[..., PostgresSource], settings: JobSettings, database: Database
) -> None:
    """Postgres 15 tells nobody of it."""
    database.execute("create schema s; create table s.orders (id int primary key, n int)")
    database.execute("insert into s.orders values (1, 1)")
    jobs = Jobs(lake, new_source(tables=("s.*", "t.*")), settings)
    jobs.settle()
    landed = threading.Semaphore(0)
    snapshots = set()
    with jobs.streaming(Hooks(after_store=released(landed))):
        database.execute("update s.orders set n = 2")
        assert landed.acquire(timeout=60)
        database.execute("alter schema s rename to t")
        for n in range(4):
            jobs.snapshot()
            snapshots.add(jobs.table("t.orders").snapshot_id)
            database.execute(f"update t.orders set n = {n + 10}")
            assert landed.acquire(timeout=60)
    jobs.settle()
    jobs.assert_equal("t.orders")
    assert len(snapshots) <= 2
    jobs.close()


def test_a_locked_table_does_not_hold_up_the_changes_of_another(jobs: Jobs, orders: Database) -> None:
    orders.execute("create table other (id int primary key)")
    jobs.settle()
    landed = threading.Semaphore(0)
    with orders.connect(autocommit=False) as locking, jobs.streaming(Hooks(after_store=released(landed))):
        orders.execute("update orders set n = 0 where id = 1")
        assert landed.acquire(timeout=60)
        locking.execute("lock table other in access exclusive mode")  # as VACUUM FULL does, for hours
        # So that its Relation message comes again.
        orders.execute("analyze orders; alter table orders set (fillfactor = 70)")
        orders.execute("update orders set n = 0 where id = 2")
        assert landed.acquire(timeout=60)
        locking.rollback()
    jobs.settle()
    jobs.assert_equal("public.orders")


def test_a_table_that_has_lost_its_key_has_others_looked_at_no_more_often(
    jobs: Jobs, orders: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders.execute("create table other (id int primary key)")
    jobs.settle()
    landed, looks, table_of = threading.Semaphore(0), Counter[int](), catalog.table_of

    def counted(connection: Connection, oid: int) -> CatalogTable | None:
        looks[oid] += 1
        return table_of(connection, oid)

    with jobs.streaming(Hooks(after_store=released(landed))):
        orders.execute("begin; insert into other values (1); update orders set n = 0 where id = 1; commit")
        assert landed.acquire(timeout=60)
        orders.execute("alter table orders drop constraint orders_pkey; insert into orders values (77, 'x', 7)")
        assert landed.acquire(timeout=60)
        jobs.snapshot()
        orders.execute("insert into other values (2)")
        assert landed.acquire(timeout=60)
        monkeypatch.setattr(catalog, "table_of", counted)
        for number in range(3, 13):
            orders.execute(f"insert into other values ({number})")
            assert landed.acquire(timeout=60)
    assert not looks


def test_names_and_keys_are_never_taken_for_variables(jobs: Jobs, database: Database) -> None:
    database.execute('create table odd ("${env:HOME}" text primary key, "${spark.app.name}" text)')
    database.execute("insert into odd values ('${env:HOME}', '${spark.app.name}')")
    jobs.settle()
    before = jobs.table("public.odd")
    assert [column.name for column in before.columns] == ["${env:HOME}", "${spark.app.name}"]
    jobs.settle()
    assert jobs.table("public.odd") == before
    jobs.assert_equal("public.odd")


_UNHEARD = "delete from orders where id = 1; update orders set n = 0 where id = 2"


def test_a_publication_given_other_options_and_back_has_its_tables_read_anew(jobs: Jobs, orders: Database) -> None:
    jobs.settle()
    options = f"alter publication {jobs.source.publication} set (publish = "
    orders.execute(f"{options} 'insert')")
    orders.execute(_UNHEARD)
    orders.execute(f"{options} 'insert, update, delete, truncate')")
    jobs.settle()
    jobs.assert_equal("public.orders")


def test_a_publication_renamed_and_back_has_its_tables_read_anew(jobs: Jobs, orders: Database) -> None:
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


def test_tables_whose_names_are_written_alike_are_left_out_and_named(
    jobs: Jobs, orders: Database, caplog: pytest.LogCaptureFixture
) -> None:
    orders.execute('create schema "public.a"; create table "public.a".b (id int primary key)')
    orders.execute('create table "a.b" (id int primary key)')
    jobs.settle()
    assert "public.a.b is left out: its name is that of another table too" in caplog.text
    jobs.assert_equal("public.orders")


@pytest.mark.parametrize(
    ("alteration", "told"),
    [
        ("alter table orders alter n type numeric(12, 4)", "column n is of type numeric(12,4) now, before of integer"),
        ("alter table orders rename n to m", "column n is not published under this name any more"),
        ("alter table orders drop n", "column n is not published under this name any more"),
        (
            "drop table orders; create table orders (id int primary key, n text)",
            "column n is of type text now, before of integer",
        ),
    ],
)
def test_columns_that_views_may_not_fit_any_more_are_told_of(
    jobs: Jobs, orders: Database, caplog: pytest.LogCaptureFixture, alteration: str, told: str
) -> None:
    jobs.settle()
    orders.execute("alter table orders add added varchar(20)")
    jobs.settle()
    orders.execute("alter table orders alter added type text")
    jobs.settle()
    assert "staging view" not in caplog.text
    orders.execute(alteration)
    jobs.settle()
    assert caplog.text.count(f"orders: {told}") == 1


def test_a_table_without_a_key_is_read_anew_when_its_columns_are_others(jobs: Jobs, database: Database) -> None:
    database.execute("create table pairs (b int, a int); alter table pairs replica identity full")
    database.execute("insert into pairs select i % 3, 1 from generate_series(1, 9) i")
    jobs.settle()
    for alteration in ("add c text", "drop b", "rename c to d"):
        database.execute(f"alter table pairs {alteration}")
        database.execute("delete from pairs where ctid = (select min(ctid) from pairs)")
        jobs.settle()
        jobs.assert_equal("public.pairs")


def test_a_column_that_comes_back_long_after_it_was_dropped_is_empty(jobs: Jobs, orders: Database) -> None:
    orders.execute("alter table orders add extra text; update orders set extra = 'old'")
    jobs.settle()
    orders.execute("alter table orders drop extra")
    orders.execute("update orders set id = id where id = 1")
    jobs.settle()
    assert jobs.table("public.orders").dropped == ("extra",)
    orders.execute("alter table orders add extra text")
    orders.execute("update orders set id = id where id = 1")
    jobs.settle()
    jobs.assert_equal("public.orders")
    assert jobs.table("public.orders").dropped is None


def test_a_deferrable_key_is_no_identity_and_left_out(jobs: Jobs, database: Database) -> None:
    database.execute(
        "create table later (id int primary key deferrable); create table kept (id int primary key);"
        "insert into later values (1); insert into kept values (1)"
    )
    jobs.settle()
    assert {t.table_name for t in jobs.lake.tables.read(jobs.source.name).values()} == {"public.kept"}
    database.execute("update later set id = 2")


def test_what_would_break_the_source_or_has_no_columns_is_left_out_alone(jobs: Jobs, database: Database) -> None:
    database.execute(
        "create table kept (id int primary key); insert into kept values (1);"
        "create table zero (); alter table zero replica identity full;"
        "create table by_sum (n int, g int generated always as (n * 2) stored primary key);"
        "insert into by_sum values (1);"
        "create table whole (id int primary key, n int, g int generated always as (n * 2) stored);"
        "alter table whole replica identity full; insert into whole values (1, 1)"
    )
    jobs.settle()
    assert jobs.table("public.kept").state == DONE
    database.execute("update by_sum set n = 3; update whole set n = 3; delete from whole")
    jobs.assert_equal("public.kept")


def test_leaves_with_their_columns_in_another_order_have_the_same_keys(jobs: Jobs, database: Database) -> None:
    database.execute(
        "create table parts (a int, b text) partition by list (a); create table one (b text, a int);"
        "alter table parts attach partition one for values in (1);"
        "alter table parts replica identity full; alter table one replica identity full;"
        "insert into parts values (1, 'x'), (1, 'x'), (1, 'y')"
    )
    jobs.settle()
    database.execute("delete from parts where ctid = (select min(ctid) from parts)")
    database.execute("update parts set b = 'z' where b = 'y'")
    jobs.settle()
    jobs.assert_equal("public.parts")


def test_a_root_made_later_without_partitions_is_published(jobs: Jobs, orders: Database) -> None:
    jobs.settle()
    orders.execute("create table roots (id int primary key) partition by range (id)")
    jobs.settle()
    orders.execute("create table roots_1 partition of roots default; insert into roots values (1)")
    jobs.settle()
    jobs.assert_equal("public.roots")


def test_a_publication_that_leaves_out_changes_is_refused(jobs: Jobs, orders: Database) -> None:
    jobs.settle()
    orders.execute(f"alter publication {jobs.source.publication} set (publish = 'insert')")
    with pytest.raises(Failure, match="does not send all kinds of changes"):
        jobs.snapshot()
