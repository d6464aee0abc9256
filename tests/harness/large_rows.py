"""Rows that are large for a process with a small heap: python -m tests.harness.large_rows.

Prints as JSON: the source's error after a row that is too large; the rows of the models (table, key, n, bytes) before
it, and after the tables with such rows are excluded.
"""

import json
import sys

import psycopg

from ingest.common.errors import Failure
from ingest.config.sources_file import PostgresSource, Settings, load
from ingest.lake import Lake
from ingest.lake.raw_schema import EVENTS
from ingest.lake.spark_session import open_session
from ingest.pipeline.run_loop import Pipeline
from ingest.project.dbt_project import Project

# Shares of the largest permitted row. The text hardly compresses with zstd, and Postgres stores it uncompressed.
LARGE, TOO_LARGE = 0.95, 1.1
TABLES = """
    create table small (id int primary key, n int);
    create table kept (id int primary key, n int, large text);
    create table left_out (id int primary key, n int, large text);
    create table grown (id int primary key, n int, large text);
    alter table kept alter large set storage external;
    alter table left_out alter large set storage external;
    alter table grown alter large set storage external;
    insert into small values (1, 1);
"""
INSERT = "insert into {} select 1, 1, string_agg(md5(i::text), '') from generate_series(1, {} / 32) i"
ROWS = """
    select table_name, row_key, columns['n'], length(columns['large'])
    from core.row_state where not deleted order by table_name, row_key
"""


def main() -> None:
    """Snapshots, an update without its large value, a row that is too large, and the recovery from it."""
    settings = load()
    (source,) = settings.sources.values()
    assert isinstance(source, PostgresSource)
    lake = Lake(open_session())
    largest_row = lake.folder(EVENTS).largest_row
    assert largest_row is not None

    def execute(*statements: str) -> None:
        with psycopg.connect(source.dsn.get_secret_value()) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    execute(
        TABLES, INSERT.format("kept", int(largest_row * LARGE)), INSERT.format("left_out", int(largest_row * TOO_LARGE))
    )
    run_until_caught_up(lake, settings)
    execute("update kept set n = 2")
    run_until_caught_up(lake, settings)
    output: dict[str, object] = {"before": rows(lake), "largest": largest_row}
    execute(
        "insert into small values (2, 2)", INSERT.format("grown", int(largest_row * TOO_LARGE)), "update kept set n = 3"
    )
    try:
        run_until_caught_up(lake, settings)
    except Failure as failure:
        output["failure"] = str(failure)
    reduced = source.model_copy(update={"tables": (*source.tables, "!public.left_out", "!public.grown")})
    run_until_caught_up(lake, settings.model_copy(update={"sources": {source.name: reduced}}))
    output["after"] = rows(lake)
    sys.stdout.write(f"\n{json.dumps(output)}\n")


def run_until_caught_up(lake: Lake, settings: Settings) -> None:
    """Runs `tidemark run --until-caught-up`."""
    pipeline = Pipeline(lake, settings, Project())
    with pipeline.running():
        pipeline.loop(until_caught_up=True)


def rows(lake: Lake) -> list[list[object]]:
    """The rows of the models."""
    return [list(row) for row in lake.spark.sql(ROWS).collect()]


if __name__ == "__main__":
    main()
