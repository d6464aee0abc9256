"""Upkeep: what keeps the lake small, beside running jobs. Nothing that a reader or a run sees changes.

The models' tables are dbt's (macros/upkeep): op logs are compacted, tombstones, old manifests and checkpoints purged,
files put together, each table published as a run is. Raw rows that all models have passed go (`lake.purge`). Of all
tables old Iceberg snapshots are expired. Killed anywhere, the next run or upkeep finishes what was begun.
"""

from collections.abc import Iterator

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from ingest.common.environment_errors import unavailable
from ingest.common.errors import Failure, one_line
from ingest.config.job_settings import JobSettings
from ingest.lake import Lake
from ingest.lake.retention import compact_raw, purge_raw
from ingest.project.dbt_project import Project, first_line, repeated_if_overtaken


def maintain(lake: Lake, settings: JobSettings, project: Project) -> Iterator[str]:
    """Does what is due; gives a line for each thing done.

    Raises Overtaken if runs publish first again and again, Unavailable if a disk or the catalog fails, Failure for what
    Spark or Iceberg refuse.
    """
    yield from _maintain_models(settings, project)
    try:
        yield from purge_raw(lake.spark, settings.retention_seconds)
        yield from compact_raw(lake.spark, settings.compaction_min_files)
        expired = lake.expire_snapshots(settings.iceberg_snapshot_retention_seconds)
        folders = lake.remove_empty_folders()
    except (PySparkException, Py4JJavaError, OSError) as error:
        if found := unavailable(error, lake.location):
            raise found from error
        raise Failure(f"upkeep has failed ({one_line(first_line(str(error)))[:500]})", "the raw tables") from error
    if expired:
        age = f"{settings.iceberg_snapshot_retention_seconds:.0f} s"
        yield f"{len(expired)} tables: {sum(expired.values())} Iceberg snapshots older than {age} expired"
    if folders:
        yield f"raw tables: {folders} empty folders removed"


@repeated_if_overtaken
def _maintain_models(settings: JobSettings, project: Project) -> list[str]:
    return project.operation(
        "maintain",
        superseded_share=settings.compaction_threshold,
        small_files=settings.compaction_min_files,
        keep_seconds=settings.retention_seconds,
        iceberg_snapshot_retention_seconds=settings.iceberg_snapshot_retention_seconds,
    )
