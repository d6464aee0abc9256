"""What people try first in a new lake: a run before there is anything to read, one of a part, one while nothing is
landed; then `tidemark run --until-caught-up`.

python -m tests.harness.first_runs QUERY: writes what the refused ones say, and the first column of what the query
gives in the end.
"""

import sys

from ingest.common.errors import Failure
from ingest.config.sources_file import load
from ingest.lake import Lake
from ingest.lake.spark_session import open_session
from ingest.pipeline.run_loop import Pipeline
from ingest.project.dbt_project import Project


def main(query: str) -> None:
    """Run, then go on until all is caught up with."""
    spark = open_session()
    refused("build")
    lake = Lake(spark)
    refused("run", "--select", "checkpoints")
    pipeline = Pipeline(lake, load(), Project())
    pipeline.model()
    with pipeline.running():
        pipeline.loop(until_caught_up=True)
    sys.stdout.write(f"{[row[0] for row in spark.sql(query).collect()]}\n")


def refused(*command: str) -> None:
    """A dbt command that has to fail."""
    try:
        Project().invoke(*command)
    except Failure as failure:
        sys.stdout.write(f"{failure}\n")
    else:
        raise AssertionError(f"{command} was not refused")


if __name__ == "__main__":
    main(sys.argv[1])
