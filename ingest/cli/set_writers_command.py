"""`tidemark set-writers`."""

import click

from ingest.cli import options
from ingest.cli.lake_session import open_lake
from ingest.cli.terminal import print_line
from ingest.config.sources_file import load


@click.command("set-writers")
@options.SOURCES
@options.TARGET
@click.argument("source")
def set_writers(sources: str, target: str | None, source: str) -> None:
    """Change the number of stream writers of SOURCE to `writers` of sources.yml.

    End all processes of the source first: the command refuses while a stream runs. The database stays in use, and no
    table is read again. If the command is interrupted, run it again; until then `run`, `stream` and `snapshot` refuse
    to start.
    """
    from ingest.sources import source_kinds

    settings = load(sources)
    source_config = settings.source(source)
    source_kinds.set_writers(open_lake(target, is_short_command=True), source_config, settings.settings)
    print_line(f"{source}: writers: {source_config.writers}")
