"""`tidemark verify`."""

import sys

import click

from ingest.cli import options
from ingest.cli.lake_session import open_lake
from ingest.common.errors import printable
from ingest.config.sources_file import load


@click.command()
@options.SOURCES
@options.TARGET
@click.option("--source", "source_name", metavar="NAME", help="Only this source.")
@click.option("--json", "as_json", is_flag=True, help="JSON lines, for programs.")
@click.option(
    "--wait",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    help="Fail after this many seconds without progress of the stream or the models.",
)
@click.argument("tables", nargs=-1, metavar="[TABLE]...")
def verify(
    sources: str, target: str | None, source_name: str | None, as_json: bool, wait: float, tables: tuple[str, ...]
) -> None:
    """Compare lake and source, row by row, at one position of the source's log.

    Reads the tables (none named: all) while jobs run, and waits until the models reach the position of the read, as
    long as they make progress. Rows that have changed since are not compared. Exit code 1 if a row differs.
    """
    from ingest.commands.verify import verify_tables

    settings, lake, is_equal = load(sources), open_lake(target), True
    for comparison in verify_tables(lake, settings, wait, tables, source_name):
        is_equal = is_equal and comparison.is_equal
        click.echo(comparison.to_json() if as_json else printable(str(comparison)))
    if not is_equal:
        sys.exit(1)
