"""The models: what a run costs by the changes it brings and by the size of the table, and beside dbt's own merge."""

import shutil
from collections.abc import Iterator
from itertools import count
from typing import Any

from bench import items
from bench.contest import Side, contest
from bench.measure import Run, stopwatch
from bench.place import Place
from bench.replica import Replica
from bench.result import Result, durations
from ingest.project.dbt_project import Project

CHANGES, ROWS, MORE_ROWS, MOST_ROWS = 100_000, 1_000_000, 5_000_000, 10_000_000
SIZE_MARK = 1.3
DEFINITIONS = {"by_customer": "customer", "by_status": "status", "large_orders": "customer"}


def results(place: Place) -> Iterator[Result]:
    """The first build, then as many changes to each of three sizes; a full refresh beside the smallest, dbt's own
    `merge` beside the largest.
    """
    sides = {}
    for name, rows, beside in (("1M", ROWS, "refresh"), ("5M", MORE_ROWS, ""), ("10M", MOST_ROWS, "merge")):
        table = f"items_{name}".lower()
        items.make(place.dsn, table, place.sized(rows))
        arguments: dict[str, Any] = {
            "dsn": place.dsn,
            "table": table,
            "rows": place.sized(rows),
            "changes": place.sized(CHANGES),
            "folder": place.new_folder(table),
            "beside": beside,
        }
        sides[name] = Side("bench.models:changed", arguments)
    found = contest(sides, place.runs)
    few, more, most = found.values()
    yield durations("models: first build of 5M rows", _stage(more[:1], "first build"))
    yield durations("models: 100k changes at 5M rows / at 1M", more, few)
    yield durations("models: 100k changes at 10M rows / at 1M", most, few, SIZE_MARK)
    refresh = _stage(few, "full refresh")
    yield durations("models: 100k changes at 1M / a full refresh of the definitions", few, refresh)
    state, merge = _stage(most, "row_state"), _stage(most, "stock_merge")
    yield durations("models: row_state at 10M rows / dbt's own merge", state, merge, 1 / 1.8)


def _stage(runs: list[Run], stage: str) -> list[Run]:
    return [Run(seconds=run.stages[stage]) for run in runs]


def changed(dsn: str, table: str, rows: int, changes: int, folder: str, beside: str) -> Iterator[Run]:
    """Runs of dbt, each with as many changes all over the table: 80 % updates, 10 % inserts, 10 % deletes.

    beside: what is done each time after it. `refresh`: all definitions are built from nothing; `merge`: dbt's own.
    """
    replica = Replica(dsn, table, folder)
    for name, column in DEFINITIONS.items():
        replica.definition(name, column, "amount > 500" if name == "large_orders" else "true")
    replica.land()
    pipeline, project = replica.pipeline(), replica.project()
    with stopwatch() as first:
        pipeline.model()
    stock = _with_stock_merge(replica, table)
    if beside == "merge":
        stock.invoke("run", "--select", "stock_merge")
    for number in count():
        _change(dsn, table, rows, changes, number)
        replica.land()
        with stopwatch() as run:
            made = pipeline.model()
        run.amount = changes
        run.stages = {outcome.name: outcome.seconds for outcome in made.outcomes}
        run.stages["first build"] = first.seconds
        if beside == "merge":
            done = stock.invoke("run", "--select", "stock_merge")
            run.stages |= {one.name: one.seconds for one in done if one.name == "stock_merge"}
        if beside == "refresh":
            with stopwatch() as again:
                project.invoke("run", "--full-refresh", "--select", *DEFINITIONS)
            run.stages["full refresh"] = again.seconds
        yield run


def _change(dsn: str, table: str, rows: int, changes: int, number: int) -> None:
    tenth = changes // 10
    step = rows // (changes - tenth)
    with items.connect(dsn) as connection:
        connection.execute(
            f"update {table} set status = 'run {number}', amount = amount + 1 "
            f"where id % {step} = {number % step} and id <= {8 * tenth * step}".encode()
        )
        first = rows - tenth * (number + 1)
        connection.execute(f"delete from {table} where id > {first} and id <= {first + tenth}".encode())
        items.insert(connection, table, tenth, after=rows + number * tenth)


def _with_stock_merge(replica: Replica, table: str) -> Project:
    """A copy of the project that has it as well; its runs are apart from ours."""
    folder = replica.project_folder.with_name("with_stock_merge")
    shutil.copytree(replica.project_folder, folder)
    (folder / "models/core/stock_merge.sql").write_text(_stock_merge(table))
    return Project(folder=folder)


def _stock_merge(table: str) -> str:
    """What a dbt user would write for the rows now, over the same events and in a table of the same kind: incremental,
    `merge` on the key, the newest change of each.
    """
    return f"""{{{{ config(
    materialized='incremental', incremental_strategy='merge', unique_key='row_key',
    tblproperties={{'format-version': '3', 'write.merge.mode': 'merge-on-read'}},
) }}}}
with changes as (
    select row_key, op, columns, commit_lsn, commit_index from {{{{ ref('events') }}}}
    where source = '{table}'
    {{% if is_incremental() %}} and commit_lsn > (select max(commit_lsn) from {{{{ this }}}}) {{% endif %}}
    {{% if not is_incremental() %}}
    union all
    select row_key, 'insert', columns, snapshot_lsn, -1 from {{{{ source('raw', 'snapshot_rows') }}}}
    where source = '{table}'
    {{% endif %}}
)
select row_key, max_by(op, (commit_lsn, commit_index)) as op,
    max_by(columns, (commit_lsn, commit_index)) as columns, max(commit_lsn) as commit_lsn
from changes group by row_key
"""
