"""`tidemark run --until-caught-up` that kills itself with SIGKILL: python -m tests.harness.killed_run KILL_POINT."""

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from ingest.config.sources_file import load
from ingest.lake import Lake
from ingest.lake.spark_session import open_session
from ingest.pipeline.run_loop import Pipeline
from ingest.project.dbt_project import Project
from tests.harness.kill_points import intercept_statements

# Before a statement of dbt, or before a method call of the lake or of a part of it.
STATEMENTS = {"modelling": "merge into core.row_state", "publishing": "fast_forward('lake.core.events'"}
CALLS: dict[str, tuple[Callable[[Lake], object], str]] = {
    "committing": (lambda lake: lake, "add"),
    "storing": (lambda lake: lake.positions, "store"),
}


def main(kill_point: str) -> None:
    """Runs until the process is killed."""

    def kill(*_: Any, **__: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def kill_before(sql: str) -> None:
        if STATEMENTS.get(kill_point, "never") in sql:
            kill()

    lake = Lake(open_session())
    pipeline = Pipeline(lake, load(), Project())
    with intercept_statements(kill_before), pipeline.running():
        if kill_point in CALLS:
            part, method = CALLS[kill_point]
            setattr(part(lake), method, kill)
        pipeline.loop(until_caught_up=True)


if __name__ == "__main__":
    main(sys.argv[1])
