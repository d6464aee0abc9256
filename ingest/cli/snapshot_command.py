"""`tidemark snapshot`."""

import click

from ingest.cli import options
from ingest.cli.lake_session import open_lake
from ingest.cli.stop_signals import run_jobs
from ingest.config.sources_file import load


@click.command()
@options.job_options
def snapshot(
    sources: str, target: str | None, source_names: tuple[str, ...], until_caught_up: bool, timeout: float | None
) -> None:
    """Read the queued tables into raw.snapshot_rows, chunk by chunk, on Spark's executors.

    New tables are queued automatically. Runs alongside `tidemark stream`; several may run at once. A source that
    fails is retried while the others go on; exit code 1 if one is in a failed state at the end.
    """
    from ingest.pipeline.ingest_jobs import Jobs

    options.check_timeout(until_caught_up, timeout)
    settings = load(sources).only(source_names)
    run_jobs(Jobs(open_lake(target), settings, stream=False), until_caught_up, timeout)
