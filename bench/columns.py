"""Wide tables: the cost of a changed row by its number of columns."""

from collections.abc import Iterator
from itertools import count

from bench import dataset
from bench.dbt_project import BenchmarkProject
from bench.environment import Environment
from bench.resource_usage import Run, stopwatch
from bench.result import Result, compare_durations
from bench.runner import Side, run_in_turns
from ingest.commands.codegen import Codegen

NARROW, WIDE = 100, 400
ROWS = 50_000
MARK = 4.5
TYPES = ("int", "text", "numeric(12, 2)", "bigint")


def results(environment: Environment) -> Iterator[Result]:
    """Measures runs that change all rows of a table with 100 and 400 columns."""
    sides = {}
    rows = environment.sized(ROWS)
    for columns in (NARROW, WIDE):
        table = f"columns_{columns}"
        _create_table(environment.dsn, table, columns, rows)
        arguments = {
            "dsn": environment.dsn,
            "table": table,
            "rows": rows,
            "folder": environment.new_folder(table),
        }
        sides[str(columns)] = Side("bench.columns:changed", arguments)
    runs = run_in_turns(sides, environment.runs)
    wide, narrow = runs[str(WIDE)], runs[str(NARROW)]
    yield compare_durations(f"columns: changed rows of {WIDE} columns / of {NARROW}", wide, narrow, MARK)


def _create_table(dsn: str, table: str, columns: int, rows: int) -> None:
    kinds = [TYPES[number % len(TYPES)] for number in range(columns - 1)]
    definitions = "".join(f", c{number} {kind} not null" for number, kind in enumerate(kinds))
    values = "".join(f", i + {number}" for number in range(len(kinds)))
    with dataset.connect(dsn) as connection:
        connection.execute(f"create table {table} (id int primary key{definitions})".encode())
        connection.execute(f"insert into {table} select i{values} from generate_series(1, {rows}) i".encode())


def changed(dsn: str, table: str, rows: int, folder: str) -> Iterator[Run]:
    """Runs over the generated view and a definition of all columns, each with a change of every row."""
    bench_project = BenchmarkProject(dsn, table, folder)
    staging = bench_project.project_folder / "models/staging"
    (staging / f"stg_{table}.sql").unlink()  # of the columns that other benchmarks have
    codegen = Codegen(lambda _: "", staging)
    codegen.write(bench_project.settings.sources[table], bench_project.settings.settings)
    meta = {"bucket_by": ["c0"], "object_type": "item", "object_id": "id", "evaluation": "incremental"}
    bench_project.write_model(
        "buckets/items",
        f"{{{{ config(materialized='bucket', meta={meta!r}) }}}}\n"
        f"select * except (_checkpoint_id) from {{{{ tidemark.rows('stg_{table}__{table}') }}}}\n",
    )
    bench_project.ingest()
    pipeline = bench_project.pipeline()
    pipeline.model()
    for number in count():
        with dataset.connect(dsn) as connection:
            connection.execute(f"update {table} set c3 = c3 + {number + 1}".encode())
        bench_project.ingest()
        with stopwatch() as run:
            dbt_run = pipeline.model()
        run.amount = rows
        run.stages = {outcome.name: outcome.seconds for outcome in dbt_run.outcomes}
        yield run
