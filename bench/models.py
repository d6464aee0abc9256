"""The models: the cost of a run by its changes and by the size of the table, and against dbt's own merge."""

import shutil
from collections.abc import Iterator
from itertools import count
from typing import Any

from bench import dataset
from bench.dbt_project import BenchmarkProject
from bench.environment import Environment
from bench.resource_usage import Run, stopwatch
from bench.result import Result, compare_durations
from bench.runner import Side, run_in_turns
from ingest.project.dbt_project import Project

CHANGES, ROWS, MORE_ROWS = 100_000, 1_000_000, 10_000_000
SIZE_MARK = 1.3
DEFINITIONS = {"by_customer": "customer", "by_status": "status", "large_orders": "customer"}


def results(environment: Environment) -> Iterator[Result]:
    """Measures the first build, then the same number of changes at two sizes; also a full refresh at the smallest,
    and dbt's own `merge` at the largest.
    """
    sides = {}
    for name, rows, baseline in (("1M", ROWS, "refresh"), ("10M", MORE_ROWS, "merge")):
        table = f"items_{name}".lower()
        dataset.create_table(environment.dsn, table, environment.sized(rows))
        arguments: dict[str, Any] = {
            "dsn": environment.dsn,
            "table": table,
            "rows": environment.sized(rows),
            "changes": environment.sized(CHANGES),
            "folder": environment.new_folder(table),
            "baseline": baseline,
        }
        sides[name] = Side("bench.models:changed", arguments)
    runs = run_in_turns(sides, environment.runs)
    few, more = runs.values()
    yield compare_durations("models: first build of 10M rows", _stage(more[:1], "first build"))
    yield compare_durations("models: 100k changes at 10M rows / at 1M", more, few, SIZE_MARK)
    refresh = _stage(few, "full refresh")
    yield compare_durations("models: 100k changes at 1M / a full refresh of the definitions", few, refresh)
    state, merge = _stage(more, "row_state"), _stage(more, "stock_merge")
    yield compare_durations("models: row_state at 10M rows / dbt's own merge", state, merge, 1 / 1.8)


def _stage(runs: list[Run], stage: str) -> list[Run]:
    return [Run(seconds=run.stages[stage]) for run in runs]


def changed(dsn: str, table: str, rows: int, changes: int, folder: str, baseline: str) -> Iterator[Run]:
    """Runs of dbt, each with `changes` changes all over the table: 80 % updates, 10 % inserts, 10 % deletes.

    baseline: also measured after each run. `refresh`: a full refresh of all definitions; `merge`: dbt's own merge.
    """
    bench_project = BenchmarkProject(dsn, table, folder)
    for name, column in DEFINITIONS.items():
        bench_project.write_definition(name, column, "amount > 500" if name == "large_orders" else "true")
    bench_project.ingest()
    pipeline, project = bench_project.pipeline(), bench_project.project()
    with stopwatch() as first:
        pipeline.model()
    stock = _with_stock_merge(bench_project, table)
    if baseline == "merge":
        stock.invoke("run", "--select", "stock_merge")
    for number in count():
        _change(dsn, table, rows, changes, number)
        bench_project.ingest()
        with stopwatch() as run:
            dbt_run = pipeline.model()
        run.amount = changes
        run.stages = {outcome.name: outcome.seconds for outcome in dbt_run.outcomes}
        run.stages["first build"] = first.seconds
        if baseline == "merge":
            outcomes = stock.invoke("run", "--select", "stock_merge")
            run.stages |= {outcome.name: outcome.seconds for outcome in outcomes if outcome.name == "stock_merge"}
        if baseline == "refresh":
            with stopwatch() as refresh_run:
                project.invoke("run", "--full-refresh", "--select", *DEFINITIONS)
            run.stages["full refresh"] = refresh_run.seconds
        yield run


def _change(dsn: str, table: str, rows: int, changes: int, number: int) -> None:
    tenth = changes // 10
    step = rows // (changes - tenth)
    with dataset.connect(dsn) as connection:
        connection.execute(
            f"update {table} set status = 'run {number}', amount = amount + 1 "
            f"where id % {step} = {number % step} and id <= {8 * tenth * step}".encode()
        )
        first = rows - tenth * (number + 1)
        connection.execute(f"delete from {table} where id > {first} and id <= {first + tenth}".encode())
        dataset.insert_rows(connection, table, tenth, after=rows + number * tenth)


def _with_stock_merge(bench_project: BenchmarkProject, table: str) -> Project:
    """A copy of the project with the model `stock_merge`; its runs are separate."""
    folder = bench_project.project_folder.with_name("with_stock_merge")
    shutil.copytree(bench_project.project_folder, folder, symlinks=True)
    (folder / "models/stock_merge.sql").write_text(_stock_merge(table))
    return Project(folder=folder)


def _stock_merge(table: str) -> str:
    """What a dbt user would write for the current rows, over the same events and in a table of the same kind:
    incremental, `merge` on the key, the newest change of each key.
    """
    return f"""{{{{ config(
    materialized='incremental', incremental_strategy='merge', unique_key='row_key', file_format='iceberg',
    schema='core', tblproperties={{'format-version': '3', 'write.merge.mode': 'merge-on-read'}},
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
