"""`tidemark resnapshot`."""

from collections.abc import Iterable

import click

from ingest.cli import options
from ingest.cli.lake_session import open_lake
from ingest.cli.terminal import print_line
from ingest.config.sources_file import load


@click.command()
@options.SOURCES
@options.TARGET
@click.option("--source", metavar="NAME", help="Only this source.")
@click.option(
    "--all", "all_tables", is_flag=True, help="All tables, from a new slot: the way out when the log was lost."
)
@click.option(
    "--writer",
    "writers",
    type=click.IntRange(min=1),
    multiple=True,
    metavar="N",
    help="The tables of this writer, from a new slot, where the log of one of several was lost; may be repeated.",
)
@click.argument("tables", nargs=-1, metavar="[TABLE]...")
def resnapshot(
    sources: str,
    target: str | None,
    source: str | None,
    all_tables: bool,
    writers: tuple[int, ...],
    tables: tuple[str, ...],
) -> None:
    """Queue new snapshots of tables, such as public.orders; `tidemark snapshot` or `run` then takes them.

    A new snapshot replaces what the lake has of the table: rows that the source no longer has leave. Until it is
    complete, definitions over the table wait; all others go on. End the stream before `--all`, and the stream of that
    writer before `--writer`.
    """
    from ingest.commands.resnapshot import queue_tables, resnapshot_sources, resnapshot_writers

    if [all_tables, bool(writers), bool(tables)].count(True) != 1:
        raise click.UsageError("Name tables, or give --all, or --writer.")
    settings, lake = load(sources), open_lake(target, is_short_command=True)
    if all_tables:
        lines: Iterable[str] = resnapshot_sources(lake, settings, source)
    elif writers:
        lines = resnapshot_writers(lake, settings, sorted(set(writers)), source)
    else:
        lines = queue_tables(lake, settings, tables, source)
    for line in lines:
        print_line(line)
