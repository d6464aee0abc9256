"""Rows that are large for the heap, in a process with a small one: python -m tests.harness.large_rows.

Prints as JSON: the error of the source after a row that is too large; and the rows of the models (table, key, n, bytes)
before that, and after the tables with such rows are excluded.
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
    """Snapshots, an update beside a large value, a row that is too large, and how to continue after it."""
    settings = load()
    (source,) = settings.sources.values()
    assert isinstance(source, PostgresSource)
    lake = Lake(open_session())
    most = lake.folder(EVENTS).largest_row
    assert most is not None

    def execute(*statements: str) -> None:
        with psycopg.connect(source.dsn.get_secret_value()) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    execute(TABLES, INSERT.format("kept", int(most * LARGE)), INSERT.format("left_out", int(most * TOO_LARGE)))
    caught_up(lake, settings)
    execute("update kept set n = 2")
    caught_up(lake, settings)
    found: dict[str, object] = {"before": rows(lake), "largest": most}
    execute("insert into small values (2, 2)", INSERT.format("grown", int(most * TOO_LARGE)), "update kept set n = 3")
    try:
        caught_up(lake, settings)
    except Failure as failure:
        found["failure"] = str(failure)
    without = source.model_copy(update={"tables": (*source.tables, "!public.left_out", "!public.grown")})
    caught_up(lake, settings.model_copy(update={"sources": {source.name: without}}))
    found["after"] = rows(lake)
    sys.stdout.write(f"\n{json.dumps(found)}\n")


def caught_up(lake: Lake, settings: Settings) -> None:
    """`tidemark run --until-caught-up`."""
    pipeline = Pipeline(lake, settings, Project())
    with pipeline.running():
        pipeline.loop(until_caught_up=True)


def rows(lake: Lake) -> list[list[object]]:
    """What the models show."""
    return [list(row) for row in lake.spark.sql(ROWS).collect()]


if __name__ == "__main__":
    main()
