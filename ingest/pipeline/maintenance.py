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


def run_maintenance(lake: Lake, settings: JobSettings, project: Project) -> Iterator[str]:
    """Runs the maintenance that is due; yields a line for each action.

    Raises ConcurrentPublishError if runs repeatedly publish first, Unavailable if a disk or the catalog fails, Failure
    for errors of Spark or Iceberg.
    """
    yield from _maintain_models(settings, project)
    try:
        yield from purge_raw(lake.spark, settings.retention_seconds)
        yield from compact_raw(lake.spark, settings.compaction_min_files)
        expired_counts = lake.expire_snapshots(settings.iceberg_snapshot_retention_seconds)
        folder_count = lake.remove_empty_folders()
    except (PySparkException, Py4JJavaError, OSError) as error:
        if known_error := unavailable(error, lake.location):
            raise known_error from error
        raise Failure(
            f"maintenance failed ({one_line(first_message_line(str(error)))[:500]})", "the raw tables"
        ) from error
    if expired_counts:
        age = f"{settings.iceberg_snapshot_retention_seconds:.0f} s"
        yield f"{len(expired_counts)} tables: {sum(expired_counts.values())} Iceberg snapshots older than {age} expired"
    if folder_count:
        yield f"raw tables: {folder_count} empty folders removed"


@retry_on_concurrent_publish
def _maintain_models(settings: JobSettings, project: Project) -> list[str]:
    return project.run_operation(
        "maintain",
        superseded_share=settings.compaction_threshold,
        small_files=settings.compaction_min_files,
        keep_seconds=settings.retention_seconds,
        iceberg_snapshot_retention_seconds=settings.iceberg_snapshot_retention_seconds,
    )
