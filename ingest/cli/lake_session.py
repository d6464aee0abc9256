"""The lake of a command."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ingest.lake import Lake


def open_lake(target: str | None, *, is_short_command: bool = False) -> "Lake":
    """Starts Spark, which takes seconds. target: an output of profiles.yml (None: the default).

    is_short_command: see `open_session`.
    """
    from ingest.lake import Lake
    from ingest.lake.spark_session import open_session

    return Lake(open_session(target, is_short_command=is_short_command))
