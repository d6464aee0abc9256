"""`tidemark stream`."""

import click

from ingest.cli import options
from ingest.cli.lake_session import open_lake
from ingest.cli.stop_signals import run_jobs
from ingest.config.sources_file import load


@click.command()
@options.job_options
@click.option(
    "--writer",
    "writers",
    type=click.IntRange(min=1),
    multiple=True,
    metavar="N",
    help="Only this writer of a source; may be repeated. Default: all.",
)
def stream(
    sources: str,
    target: str | None,
    source_names: tuple[str, ...],
    until_caught_up: bool,
    timeout: float | None,
    writers: tuple[int, ...],
) -> None:
    """Commit the sources' changes to raw.wal_events as they occur.

    Creates missing slots and publications. A position is confirmed to the source only after everything before it has
    been committed to the lake. A source that fails is retried while the others go on; exit code 1 if one is in a failed
    state at the end.
    """
    from ingest.pipeline.ingest_jobs import Jobs

    options.check_timeout(until_caught_up, timeout)
    settings = load(sources).only(source_names)
    max_writers = max(source.writers for source in settings.sources.values())
    if any(writer > max_writers for writer in writers):
        raise click.UsageError(f"No source in {sources} has more writers than {max_writers}.")
    run_jobs(Jobs(open_lake(target), settings, snapshot=False, writers=writers or None), until_caught_up, timeout)
