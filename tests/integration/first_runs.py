"""`tidemark run --until-caught-up` in a lake that models ran in when it was empty.

python -m tests.integration.first_runs QUERY: writes the first column of what the query gives in the end.
"""

import sys

from ingest.config import load
from ingest.lake import Lake
from ingest.project import Project
from ingest.run import Pipeline
from ingest.spark import session


def main(query: str) -> None:
    """Run, then go on until all is caught up with."""
    lake = Lake(session())
    pipeline = Pipeline(lake, load(), Project())
    pipeline.model()
    with pipeline.running():
        pipeline.loop(until_caught_up=True)
    sys.stdout.write(f"{[row[0] for row in lake.spark.sql(query).collect()]}\n")


if __name__ == "__main__":
    main(sys.argv[1])
