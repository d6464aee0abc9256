"""The lake of a command."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ingest.lake import Lake


def open_lake(target: str | None) -> "Lake":
    """Starts Spark, which takes seconds. target: an output of profiles.yml (None: the default)."""
    from ingest.lake import Lake
    from ingest.lake.spark_session import open_session

    return Lake(open_session(target))
