"""From a real Postgres to buckets: after every run tables, bucket rows and replayed op logs equal SQL on the source."""

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from ingest import plan
from ingest.buckets import resolve
from ingest.config import PostgresSource
from ingest.errors import Failure, UsageError
from ingest.lake import Chunk, Lake
from ingest.project import Overtaken
from ingest.settings import JobSettings
from ingest.snapshot import SnapshotHooks
from tests.conftest import Database
from tests.integration.replay import Jobs
from tests.integration.replay import Killed as KilledJob
from tests.integration.replica import Killed, Replica, killed_at, meanwhile

ORDERS = {"id": "bigint", "customer": "int", "status": "string", "total": "decimal(12, 2)"}
COLUMNS = ", ".join(ORDERS)


@pytest.fixture
def replica(lake: Lake, source: PostgresSource, settings: JobSettings, tmp_path: Path, database: Database) -> Replica:
    """Orders in the source, a definition per customer and one that adds up."""
    database.execute(
        "create table orders (id bigint primary key, customer int, status text, total numeric(12, 2), note text);"
        "alter table orders alter note set storage external;"
        "insert into orders select i, i % 5, 'new', i, repeat('x', 3000) from generate_series(1, 40) i"
    )
    replica = Replica(lake, source, settings, tmp_path)
    view = replica.view("orders", {**ORDERS, "note": "string"})
    replica.definition(
        "by_customer",
        f"select _row_key, {COLUMNS} from {{{{ rows('{view}') }}}} where status <> 'archived'",
        bucket_by=["customer"],
        object_type="order",
        object_id="id",
        evaluate="rows",
    )
    replica.definition(
        "totals",
        f"select customer, sum(total) as total, count(*) as orders from {{{{ ref('{view}') }}}} group by customer",
        bucket_by=[],
        object_id="customer",
        key=["customer"],
    )
    return replica


def name(replica: Replica, definition: str) -> str:
    return f"{definition}_{replica.source.name}"


def assert_equal(replica: Replica, database: Database, condition: str = "status <> 'archived'") -> None:
    """Everything in the lake is what SQL on the source says."""
    view, by_customer, totals = (
        f"staging.stg_{replica.source.name}__orders",
        name(replica, "by_customer"),
        name(replica, "totals"),
    )
    key = str
    assert replica.rows(f"select {COLUMNS}, note from {view}") == sorted(
        database.execute(f"select {COLUMNS}, note from orders"), key=lambda r: tuple((v is not None, key(v)) for v in r)
    )
    assert replica.bucket(by_customer, COLUMNS) == sorted(
        database.execute(f"""select '{by_customer}["' || customer || '"]', {COLUMNS} from orders where {condition}"""),
        key=lambda r: tuple((v is not None, key(v)) for v in r),
    )
    assert replica.bucket(totals, "customer, total, orders") == sorted(
        database.execute(f"select '{totals}[]', customer, sum(total), count(*) from orders group by customer"),
        key=lambda r: tuple((v is not None, key(v)) for v in r),
    )
    for definition in (by_customer, totals):
        assert replica.replayed(definition) == replica.logged_rows(definition)


CHANGES = [
    "update orders set status = 'paid' where id = 1; update orders set status = 'sent' where id = 1",
    "insert into orders values (100, 1, 'new', 5, 'short'); delete from orders where id = 2",
    "insert into orders values (101, 1, 'new', 5, 'gone again'); delete from orders where id = 101",
    "delete from orders where id = 3; insert into orders values (3, 4, 'back', 9, 'other')",
    "update orders set id = 200 where id = 4",  # its note is not sent: unchanged TOAST under a new key
    (
        "update orders set id = -1 where id = 5; update orders set id = 5 where id = 6;"
        "update orders set id = 6 where id = -1"
    ),
    "update orders set customer = 9 where id = 7; update orders set status = 'archived' where id in (8, 9)",
    "update orders set status = 'new' where id = 8",
]


@pytest.mark.parametrize("at_once", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_every_run_equals_the_source(replica: Replica, database: Database, at_once: int) -> None:
    replica.sync()
    assert_equal(replica, database)
    for first in range(0, len(CHANGES), at_once):
        for change in CHANGES[first : first + at_once]:
            database.execute(change)
        replica.sync()
        assert_equal(replica, database)


def test_what_changes_no_value_of_a_definition_makes_no_op(replica: Replica, database: Database) -> None:
    replica.sync()
    ops = replica.snapshot_ids(f"buckets.{name(replica, 'by_customer')}__ops")
    database.execute("update orders set total = total where id < 20")
    database.execute("insert into orders values (101, 1, 'new', 5, 'gone again'); delete from orders where id = 101")
    replica.sync()
    assert replica.snapshot_ids(f"buckets.{name(replica, 'by_customer')}__ops") == ops
    assert_equal(replica, database)


@pytest.mark.slow
def test_one_run_over_all_changes_equals_the_source(replica: Replica, database: Database) -> None:
    replica.sync()
    for change in CHANGES:
        database.execute(change)
    database.execute(
        "begin; insert into orders values (300, 1, 'lost', 1, ''); truncate orders; "
        "insert into orders values (1, 1, 'only', 2, 'one'); commit"
    )
    replica.sync()
    assert_equal(replica, database)
    database.execute("insert into orders select i, 1, 'new', 1, 'n' from generate_series(10, 20) i")
    replica.sync()
    assert_equal(replica, database)


@pytest.mark.slow
def test_rows_that_moved_between_chunks_of_different_moments_keep_all_their_values(
    lake: Lake, source: PostgresSource, settings: JobSettings, tmp_path: Path, database: Database
) -> None:
    """A killed snapshot goes on later: rows have moved from an unread into a read chunk meanwhile, and the log doesn't
    bring their unchanged TOAST values.
    """
    database.execute(
        "create table big (id int primary key, filler text, note text);"
        "alter table big alter note set storage external, alter filler set storage plain;"
        "insert into big select i, repeat('f', 700), repeat(i || '-', 2000) from generate_series(1, 66) i"
    )
    database.execute("delete from big where id < 20")
    database.execute("vacuum big")
    replica = Replica(lake, source, settings, tmp_path)
    view = replica.view("big", {"id": "int", "filler": "string", "note": "string"})
    replica.definition("all", f"select id from {{{{ ref('{view}') }}}}", bucket_by=[], object_id="id", key=["id"])
    small = settings.model_copy(update={"snapshot_chunk_bytes": 1, "snapshot_workers": 1, "lease_seconds": 1.0})
    jobs = Jobs(lake, source, small)

    def die_after_two(chunks: Sequence[Chunk]) -> None:
        if chunks[0].chunk == 1:
            raise KilledJob

    with pytest.raises(KilledJob):
        jobs.snapshot(SnapshotHooks(after_land=die_after_two))
    database.execute("update big set id = id + 1000 where id in (31, 41)")
    database.execute("update big set filler = repeat('g', 700) where id = 51")
    database.execute("update big set id = 2021 where id = 21")
    database.execute("update big set id = 3021 where id = 2021")
    moved = database.execute("select id from big where (ctid::text::point)[0] = 0 and id > 30")
    assert len(moved) >= 2
    asked: list[str] = []

    def moves_again(chunks: Sequence[Chunk]) -> None:
        keys = [key for chunk in chunks for key in chunk.row_keys or ()]
        if keys and not asked:
            database.execute("update big set id = 5031 where id = 1031")
        asked.extend(keys)

    with jobs.streaming():
        jobs.snapshot(SnapshotHooks(after_claim=moves_again))
    jobs.close()
    replica.sync()
    assert {f'["{key}"]' for (key,) in moved} | {'["5031"]'} <= set(asked)
    rows = database.execute("select id, filler, note from big")
    assert replica.rows(f"select id, filler, note from staging.{view}") == sorted(rows, key=lambda row: str(row[0]))


@pytest.mark.parametrize("scope", ["definition", pytest.param("source", marks=pytest.mark.slow)])
def test_a_table_that_is_read_anew_holds_up_what_its_scope_says(
    lake: Lake,
    new_source: Callable[..., PostgresSource],
    settings: JobSettings,
    tmp_path: Path,
    database: Database,
    scope: str,
) -> None:
    source = new_source(checkpoint_scope=scope)
    replica = Replica(lake, source, settings, tmp_path)
    for table in ("a", "b"):
        database.execute(f"create table {table} (id int primary key); insert into {table} values (1)")
        view = replica.view(table, {"id": "int"})
        replica.definition(table, f"select id from {{{{ ref('{view}') }}}}", bucket_by=[], object_id="id", key=["id"])
    replica.sync()
    assert lake.tables.queue(source.name, "asked for", ["public.a"]) == ["public.a"]
    database.execute("insert into a values (2); insert into b values (2)")
    stream = Jobs(lake, source, settings)
    stream.stream()
    replica.model()
    assert replica.bucket(name(replica, "a"), "id") == [(f"{name(replica, 'a')}[]", 1)]
    assert len(replica.bucket(name(replica, "b"), "id")) == (2 if scope == "definition" else 1)
    stream.close()
    replica.sync()
    for table in ("a", "b"):
        assert len(replica.bucket(name(replica, table), "id")) == 2


@pytest.mark.slow
def test_old_snapshots_are_forgotten_and_runs_go_on(replica: Replica, database: Database) -> None:
    replica.sync()
    database.execute(CHANGES[0])
    replica.sync()
    tables = replica.lake.forget(0, keep=1)
    assert {"core.`row_state`", f"buckets.`{name(replica, 'by_customer')}__ops`"} <= set(tables)
    assert replica.rows("select count(*) from core.row_state.snapshots") == [(1,)]
    database.execute(CHANGES[1])
    replica.sync()
    assert_equal(replica, database)


def test_the_unit_tests_of_the_models_pass(replica: Replica) -> None:
    replica.sync()
    outcomes = replica.model("test", "--select", "resource_type:unit_test")
    statuses = [outcome.status for name, outcome in outcomes.items() if "-on-run-" not in name]
    assert statuses == ["pass"] * 4


def test_rows_that_nothing_tells_apart_are_refused(replica: Replica) -> None:
    view = f"stg_{replica.source.name}__orders"
    query = f"select customer, status, count(*) as n from {{{{ ref('{view}') }}}} group by customer, status, id"
    replica.definition("doubled", query, bucket_by=[], object_id="customer", key=["customer"])
    with pytest.raises(Failure, match=r"Two rows of the bucket doubled_\w+\[\] have the id \d and the key"):
        replica.sync()
    assert replica.rows(f"select count(*) from buckets.{name(replica, 'doubled')}") == [(0,)]


def test_a_changed_definition_writes_the_difference_and_touches_nobody_else(
    replica: Replica, database: Database
) -> None:
    database.execute("update orders set status = 'archived' where id in (1, 2, 3)")
    replica.sync()
    by_customer, totals = name(replica, "by_customer"), name(replica, "totals")
    others = [f"buckets.{totals}", f"buckets.{totals}__ops", "core.row_state", "core.events", "core.checkpoints"]
    before = replica.snapshot_ids(*others)
    view = f"stg_{replica.source.name}__orders"
    settings = {"bucket_by": ["customer"], "object_type": "order", "object_id": "id", "evaluate": "rows"}

    def change(query: str) -> str:
        replica.definition("by_customer", query, **settings)
        done = replica.model()[by_customer].message
        assert replica.replayed(by_customer) == replica.logged_rows(by_customer)
        return done

    # White space and comments are no change.
    same = f"select  _row_key,{COLUMNS} -- all\nfrom {{{{ rows('{view}') }}}} where status<>'archived'"
    assert change(same) == "unchanged"
    wider = f"select _row_key, {COLUMNS} from {{{{ rows('{view}') }}}}"
    assert change(wider) == "definition changed, PUT 3, REMOVE 0"
    narrower = wider + " where id > 10"
    assert change(narrower) == "definition changed, PUT 0, REMOVE 10"
    assert change(wider) == "definition changed, PUT 10, REMOVE 0"
    renamed = wider.replace("status", "status as state")
    assert change(renamed) == "definition changed, PUT 40, REMOVE 0"
    assert "status" not in replica.spark.table(f"buckets.{by_customer}").columns
    assert replica.bucket(by_customer, "id, state")[0][2] is not None
    retyped = wider.replace("total", "cast(total as string) as total")
    assert change(retyped) == "definition changed, PUT 40, REMOVE 0"
    assert change(wider) == "definition changed, PUT 40, REMOVE 0"
    assert replica.snapshot_ids(*others) == before
    assert_equal(replica, database, "true")


def test_op_ids_go_on_after_a_full_refresh_that_changes_nothing(replica: Replica, database: Database) -> None:
    replica.sync()
    by_customer = name(replica, "by_customer")
    log = f"select * from buckets.{by_customer}__ops"
    before = replica.rows(log)
    replica.model("run", "--full-refresh", "--select", by_customer)
    assert replica.rows(log) == before
    database.execute("delete from orders where id = 1")
    replica.sync()
    assert len(replica.rows(log)) == len(before) + 1
    assert_equal(replica, database)


STATEMENTS: dict[str, Callable[[str], bool]] = {
    "before the events": lambda sql: "insert into core.events" in sql,
    "between the statements of row_state": lambda sql: "merge into core.row_state" in sql,
    "between rows and op log": lambda sql: "__ops" in sql and "insert into" in sql,
    "before the manifest": lambda sql: "insert into core.publications" in sql,
    "between manifest and its publication": lambda sql: "fast_forward('core.publications'" in sql,
    "between manifest and tables": lambda sql: "fast_forward('core.events'" in sql,
    "between tables": lambda sql: "fast_forward('buckets." in sql,
    "before the marks": lambda sql: "insert overwrite core.progress" in sql,
}


@pytest.mark.slow
@pytest.mark.parametrize("place", STATEMENTS)
def test_killed_anywhere_the_next_run_repairs(replica: Replica, database: Database, place: str) -> None:
    replica.sync()
    database.execute(";".join(CHANGES))
    replica.land()
    view = f"staging.stg_{replica.source.name}__orders"
    before = replica.rows(f"select {COLUMNS} from {view}")
    with pytest.raises((Failure, Killed)), killed_at(STATEMENTS[place]):
        replica.model()
    # Readers see all of the run's rows of a table, or none.
    after = replica.rows(f"select {COLUMNS} from {view}")
    assert after == before or "fast" in place or place in ("between tables", "before the marks")
    replica.model()
    assert_equal(replica, database)


def test_a_failing_data_test_keeps_its_definition_unpublished(replica: Replica, database: Database) -> None:
    replica.sync()
    by_customer, totals = name(replica, "by_customer"), name(replica, "totals")
    before = replica.rows(f"select * from buckets.{by_customer}")
    replica.write(
        f"tests/data_tests/no_refunds_{replica.source.name}.sql",
        f"select * from {{{{ ref('{by_customer}') }}}} where total < 0",
    )
    database.execute("update orders set total = -1 where id = 1")
    replica.land()
    with pytest.raises(Failure, match="no_refunds"):
        replica.model()
    assert replica.rows(f"select * from buckets.{by_customer}") == before
    assert replica.bucket(totals, "customer, total") == sorted(
        database.execute(f"select '{totals}[]', customer, sum(total) from orders group by customer"),
        key=lambda row: str(row[1]),
    )
    database.execute("update orders set total = 1 where id = 1")
    replica.sync()
    assert_equal(replica, database)


def test_a_run_that_another_one_overtook_publishes_nothing(replica: Replica, database: Database) -> None:
    replica.sync()
    database.execute("delete from orders where id < 5")
    replica.land()
    late = Replica(replica.lake, replica.source, replica.settings.settings, replica.folder / "late")
    for path in ("models/staging", "models/buckets"):
        for file in (replica.folder / path).iterdir():
            late.write(f"{path}/{file.name}", file.read_text())

    with pytest.raises(Overtaken), meanwhile("insert into core.publications", late.model):
        replica.model()
    assert_equal(replica, database)


@pytest.mark.slow
def test_random_changes_in_several_runs_equal_the_source(replica: Replica, database: Database) -> None:
    randomly = random.Random(7)
    replica.sync()
    with database.connect(autocommit=False) as connection:
        for _ in range(4):
            for _ in range(40):
                for _ in range(randomly.randint(1, 4)):
                    connection.execute("savepoint s")
                    try:
                        connection.execute(_random_change(randomly))
                    except Exception:  # noqa: BLE001  # a duplicate key
                        connection.execute("rollback to s")
                (connection.rollback if randomly.random() < 0.1 else connection.commit)()
            replica.sync()
            assert_equal(replica, database)


def _random_change(randomly: random.Random) -> str:
    a, b = randomly.randint(1, 60), randomly.randint(1, 60)
    return randomly.choice(
        [
            f"insert into orders values ({a}, {b % 6}, 'new', {b}, repeat('{b}', {randomly.choice([1, 2500])}))",
            f"update orders set status = '{randomly.choice(['paid', 'archived', 'new'])}' where id = {a}",
            f"update orders set customer = {b % 6}, total = {b} where id between {a} and {a + 5}",
            f"update orders set note = repeat('y', {randomly.choice([1, 2500])}) where id = {a}",
            f"update orders set id = {b} where id = {a}",
            f"delete from orders where id = {a}",
        ]
    )


def test_a_lookup_says_which_buckets_a_request_may_see(replica: Replica, database: Database) -> None:
    database.execute(
        "create table members (user_id int, customer int, primary key (user_id, customer));"
        "insert into members values (7, 1), (7, 2), (8, 2)"
    )
    members = replica.view("members", {"user_id": "int", "customer": "int"})
    by_customer = name(replica, "by_customer")
    lookup = replica.definition(
        "seen",
        f"select user_id, customer from {{{{ ref('{members}') }}}} where customer > 0",
        request=["user_id"],
        definition=by_customer,
    )
    file = replica.folder / f"models/buckets/{lookup}.sql"
    file.write_text("{{ config(materialized='bucket_parameters') }}\n" + file.read_text())

    def seen(**request: str) -> list[str]:
        return [grant.bucket for grant in resolve(replica.spark, request, folder=replica.folder)]

    replica.sync()
    assert seen(user_id="7") == [f'{by_customer}["1"]', f'{by_customer}["2"]']
    assert set(seen(user_id="7")) <= {bucket for (bucket,) in replica.rows(f"select bucket from buckets.{by_customer}")}
    database.execute("delete from members where customer = 1; insert into members values (8, 3)")
    replica.sync()
    assert seen(user_id="7") == [f'{by_customer}["2"]']
    assert seen(user_id="8") == [f'{by_customer}["2"]', f'{by_customer}["3"]']
    assert seen(user_id="9") == []
    assert replica.replayed(lookup) == replica.logged_rows(lookup)
    with pytest.raises(UsageError, match="no lookup asks for role"):
        seen(user_id="7", role="admin")
    replica.remove(f"models/buckets/{lookup}.sql")
    # The lake is the session's: other tests' definitions are gone too.
    steps = [step for step in plan.make(replica.spark, folder=replica.folder) if step.definition == lookup]
    assert [step.state for step in steps] == ["gone"]
    assert plan.prune(steps, folder=replica.folder) == [lookup]
    assert not replica.spark.catalog.tableExists(f"buckets.{lookup}__ops")
    assert lookup not in {step.definition for step in plan.make(replica.spark, folder=replica.folder)}
    replica.sync()
