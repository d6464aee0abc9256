"""A staging view that shows another table: definitions over it keep what they have published until a person agrees."""

from pathlib import Path

import pytest

from ingest import plan
from ingest.check import check_project
from ingest.codegen import Codegen
from ingest.config import PostgresSource
from ingest.errors import Failure
from ingest.lake import Lake
from ingest.settings import JobSettings
from ingest.viewtrial import Trial
from tests.conftest import Database
from tests.integration.replica import Replica

NEWCOMER = 'create schema "order"; create table "order".lines (id int primary key, v text)'


@pytest.fixture
def replica(lake: Lake, source: PostgresSource, settings: JobSettings, tmp_path: Path, database: Database) -> Replica:
    """public.order__lines in the source, and a definition over the view that codegen writes of it."""
    database.execute("create table order__lines (id int primary key, v text); insert into order__lines values (1, 'a')")
    every = source.model_copy(update={"tables": ("public.*", "order.*")})
    replica = Replica(lake, every, settings, tmp_path)
    write_views(replica)
    define(replica, "every", f"stg_{source.name}__order__lines")
    return replica


def write_views(replica: Replica) -> list[str]:
    codegen = Codegen(Trial(lambda: replica.spark).problem, replica.folder / "models/staging")
    return codegen.write(replica.source, replica.settings.settings).lines


def define(replica: Replica, name: str, view: str) -> str:
    query = f"select _row_key, id, v from {{{{ rows('{view}') }}}}"
    return replica.definition(name, query, bucket_by=[], object_id="id", evaluate="rows")


def show(replica: Replica, table: str, replaces: str = "") -> None:
    """Lets the view show a table; by hand, as codegen doesn't."""
    accepted = f", 'replaces': '{replica.source.name}.{replaces}'" if replaces else ""
    replica.write(
        f"models/staging/stg_{replica.source.name}__order__lines.sql",
        f"{{{{ config(meta={{'source': '{replica.source.name}', 'table': '{table}'{accepted}}}) }}}}\n"
        "select row_key as _row_key, checkpoint_id as _checkpoint_id, columns['id'] as id, columns['v'] as v\n"
        f"from {{{{ ref('row_state') }}}}\n"
        f"where source = '{replica.source.name}' and table_name = '{table}' and not deleted\n",
    )


def test_a_newcomer_takes_no_name_and_a_view_of_another_table_is_refused(replica: Replica, database: Database) -> None:
    source = replica.source.name
    view, every = f"stg_{source}__order__lines", f"every_{source}"
    replica.sync()
    database.execute(
        f"{NEWCOMER}; insert into \"order\".lines values (7, 'z'); insert into order__lines values (2, 'b')"
    )
    wrote, *_ = write_views(replica)
    newcomer = Path(wrote.removeprefix("wrote ")).stem
    assert newcomer.startswith(f"{view}_")
    others = define(replica, "others", newcomer)
    replica.sync()
    assert replica.rows(f"select v from buckets.{every}") == [("a",), ("b",)]
    assert replica.rows(f"select v from buckets.{others}") == [("z",)]

    show(replica, "order.lines")
    database.execute("insert into order__lines values (3, 'c'); insert into \"order\".lines values (8, 'y')")
    now, before = f"{source}.order.lines", f"{source}.public.order__lines"
    what = f"{view} shows {now}, but {before} when {every} was published"
    with pytest.raises(Failure, match=what.replace(".", r"\.")) as refused:
        replica.sync()
    assert f"set meta.replaces of the view to '{before}'" in str(refused.value)
    assert replica.rows(f"select v from buckets.{every}") == [("a",), ("b",)]
    assert replica.rows(f"select v from buckets.{others}") == [("y",), ("z",)]
    steps = {step.definition: step for step in plan.make(replica.spark, folder=replica.folder)}
    assert (steps[every].state, steps[others].state) == ("refused", "unchanged")
    assert what in steps[every].reason
    errors = [str(each) for each in check_project(replica.settings, folder=replica.folder) if each.level == "error"]
    assert errors[0].startswith(f"{what}: models/buckets/{every}.sql. Read a view of the table")

    both = ("run", "--select", view, every)
    # A full refresh says nothing of it, nor does another table than the one that is replaced.
    show(replica, "order.lines", replaces="public.others")
    with pytest.raises(Failure, match="was published"):
        replica.model(*both, "--full-refresh")
    show(replica, "order.lines", replaces="public.order__lines")
    replica.model(*both)
    assert replica.rows(f"select v from buckets.{every}") == [("y",), ("z",)]
    assert replica.replayed(every) == replica.logged_rows(every)
    assert not [each for each in check_project(replica.settings, folder=replica.folder) if each.level == "error"]
    # It is said once: taken out again, nothing is evaluated; and the way back is another change.
    show(replica, "order.lines")
    assert replica.model(*both)[every].message == "unchanged"
    show(replica, "public.order__lines")
    with pytest.raises(Failure, match=f"{view} shows {before}, but {now} when"):
        replica.model(*both)


def test_a_lake_of_an_earlier_tidemark_records_what_views_show(replica: Replica, database: Database) -> None:
    source = replica.source.name
    every = f"every_{source}"
    replica.sync()
    for table in ("core.progress", "core.publications"):
        replica.spark.sql(f"alter table {table} drop column view_tables")
    replica.spark.sql("alter table core.publications drop column evaluation")
    assert check_project(replica.settings, folder=replica.folder)[-1].level == "ok"
    shown = f"select view_tables from core.progress where model = '{every}'"
    database.execute("update order__lines set v = 'b'")
    replica.sync()
    assert replica.rows(shown) == [(f'{{"stg_{source}__order__lines": "{source}.public.order__lines"}}',)]
    # Upkeep publishes what it does to a definition's tables, too.
    replica.project.operation(
        "maintain", superseded_share=0.01, small_files=1, keep_seconds=0.0, keep_snapshots_seconds=0.0
    )
    assert replica.rows(shown)[0][0] is not None
    show(replica, "order.lines")
    with pytest.raises(Failure, match="was published"):
        replica.model("run", "--select", every)
