"""`tidemark maintain`."""

import click

from ingest.cli import options
from ingest.cli.lake_session import open_lake
from ingest.cli.terminal import print_line
from ingest.config.sources_file import load


@click.command()
@options.SOURCES
@options.TARGET
def maintain(sources: str, target: str | None) -> None:
    """Keep the lake small: compact op logs and files, purge old rows, expire old Iceberg snapshots.

    Raw rows and tombstones are deleted retention_seconds after all models have passed them. `tidemark run` does this
    regularly; use this command if you run dbt yourself. Safe while jobs run: if a run and maintenance conflict, the one
    that publishes second publishes nothing and is repeated.
    """
    from ingest.pipeline.maintenance import run_maintenance
    from ingest.project.dbt_project import Project

    settings = load(sources).settings
    for line in run_maintenance(open_lake(target), settings, Project(target)):
        print_line(line)
