"""The first commands in a new lake: a run before any source was read, a run of one model, a run before the first
batch; then `tidemark run --until-caught-up`.

python -m tests.harness.first_runs QUERY: writes the messages of the refused commands, and the first column of the
query's result.
"""

import sys

from ingest.common.errors import Failure
from ingest.config.sources_file import load
from ingest.lake import Lake
from ingest.lake.spark_session import open_session
from ingest.pipeline.run_loop import Pipeline
from ingest.project.dbt_project import Project


def main(query: str) -> None:
    """Runs the commands until all sources are caught up."""
    spark = open_session()
    assert_refused("build")
    lake = Lake(spark)
    assert_refused("run", "--select", "checkpoints")
    pipeline = Pipeline(lake, load(), Project())
    pipeline.model()
    with pipeline.running():
        pipeline.loop(until_caught_up=True)
    sys.stdout.write(f"{[row[0] for row in spark.sql(query).collect()]}\n")


def assert_refused(*command: str) -> None:
    """Runs a dbt command that has to fail."""
    try:
        Project().invoke(*command)
    except Failure as failure:
        sys.stdout.write(f"{failure}\n")
    else:
        raise AssertionError(f"{command} was not refused")


if __name__ == "__main__":
    main(sys.argv[1])
