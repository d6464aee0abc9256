"""Maintenance: keeps the lake small while jobs run. It changes nothing that a reader or a run can see.

dbt maintains the models' tables (dbt/adapters/tidemark/maintenance.py): it compacts op logs and files, purges
tombstones, old releases and checkpoints, and publishes each table as a run does. Raw rows that all models have passed
are purged (`lake.retention`). Old Iceberg snapshots of all tables are expired. After a kill at any point, the next run
or maintenance completes the interrupted one.
"""

from collections.abc import Iterator

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from ingest.common.environment_errors import unavailable
from ingest.common.errors import Failure, first_message_line, one_line
from ingest.config.job_settings import JobSettings
from ingest.lake import Lake
from ingest.lake.retention import compact_raw, purge_raw
from ingest.project.dbt_project import Project, retry_on_concurrent_publish

# Tables whose Iceberg snapshots are expired in one step, some tenths of a second each.
EXPIRED_TABLES = 4


def run_maintenance(lake: Lake, settings: JobSettings, project: Project) -> Iterator[str]:
    """Runs the maintenance that is due; yields a line for each action.

    Raises ConcurrentPublishError if runs repeatedly publish first, Unavailable if a disk or the catalog fails, Failure
    for errors of Spark or Iceberg.
    """
    lines, _ = _maintain_models(settings, project)
    yield from lines
    for lines in _maintain_lake(lake, settings):
        yield from lines


def maintenance_steps(lake: Lake, settings: JobSettings, project: Project) -> Iterator[list[str]]:
    """The maintenance that is due, in steps: each `next` does one, and returns its lines. Runs of the models may come
    between two steps. A step changes one table of the models, purges or compacts raw tables, or expires the Iceberg
    snapshots of a few tables.

    Raises what `run_maintenance` raises.
    """
    first: int | None = 0
    while first is not None:
        lines, first = _maintain_models(settings, project, first)
        yield lines
    yield from _maintain_lake(lake, settings)


def _maintain_lake(lake: Lake, settings: JobSettings) -> Iterator[list[str]]:
    """The steps after those of the models' tables."""
    try:
        yield list(purge_raw(lake.spark, settings.retention_seconds))
        yield list(compact_raw(lake.spark, settings.compaction_min_files))
        yield from _expire_snapshots(lake, settings.iceberg_snapshot_retention_seconds)
        if folder_count := lake.remove_empty_folders():
            yield [f"raw tables: {folder_count} empty folders removed"]
    except (PySparkException, Py4JJavaError, OSError) as error:
        if known_error := unavailable(error, lake.location):
            raise known_error from error
        raise Failure(
            f"maintenance failed ({one_line(first_message_line(str(error)))[:500]})", "the raw tables"
        ) from error


def _expire_snapshots(lake: Lake, seconds: float) -> Iterator[list[str]]:
    """Expires old Iceberg snapshots, a few tables in a step."""
    tables = lake.list_tables()
    expired_counts: dict[str, int] = {}
    for start in range(0, len(tables), EXPIRED_TABLES):
        if counts := lake.expire_snapshots(seconds, tables=tables[start : start + EXPIRED_TABLES]):
            expired_counts |= counts
            yield []
    if expired_counts:
        count = sum(expired_counts.values())
        yield [f"{len(expired_counts)} tables: {count} Iceberg snapshots older than {seconds:.0f} s expired"]


@retry_on_concurrent_publish
def _maintain_models(settings: JobSettings, project: Project, first: int | None = None) -> tuple[list[str], int | None]:
    """Maintains the models' tables; with `first`, from this step on, until one is changed. Returns the lines, and the
    step to continue with, if there is one.
    """
    lines = project.run_operation(
        "maintain",
        superseded_share=settings.compaction_threshold,
        small_files=settings.compaction_min_files,
        keep_seconds=settings.retention_seconds,
        iceberg_snapshot_retention_seconds=settings.iceberg_snapshot_retention_seconds,
        first=first,
    )
    return (lines[:-1], int(lines[-1])) if lines and lines[-1].isdecimal() else (lines, None)
