"""`tidemark run --until-caught-up`, killed by itself with SIGKILL: python -m tests.harness.killed_run PLACE."""

import os
import signal
import sys
from typing import Any

from dbt.adapters.spark.session import Cursor

from ingest.config.sources_file import load
from ingest.lake import Lake
from ingest.lake.spark_session import open_session
from ingest.pipeline.run_loop import Pipeline
from ingest.project.dbt_project import Project

# Before a statement of dbt's, or before a call of the lake's.
STATEMENTS = {"modelling": "merge into core.row_state", "publishing": "fast_forward('lake.core.events'"}
CALLS = {"landing": "add", "storing": "store"}


def main(place: str) -> None:
    """Run until killed."""

    def die(*_: Any, **__: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    execute = Cursor.execute

    def until_then(cursor: Cursor, sql: str, *parameters: Any) -> None:
        if STATEMENTS.get(place, "never") in sql:
            die()
        execute(cursor, sql, *parameters)

    Cursor.execute = until_then  # type: ignore[method-assign, assignment]
    lake = Lake(open_session())
    pipeline = Pipeline(lake, load(), Project())
    with pipeline.running():
        if place in CALLS:
            setattr(lake, CALLS[place], die)
        pipeline.loop(until_caught_up=True)


if __name__ == "__main__":
    main(sys.argv[1])
