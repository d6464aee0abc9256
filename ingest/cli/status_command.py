"""`tidemark status`."""

import click

from ingest.cli import options
from ingest.cli.lake_session import open_lake
from ingest.config.sources_file import load


@click.command()
@options.SOURCES
@options.TARGET
@click.option("--json", "as_json", is_flag=True, help="One JSON object, for programs.")
def status(sources: str, target: str | None, as_json: bool) -> None:
    """Show positions, lag, snapshots, definitions, the last release, failures and waiting definitions."""
    from ingest.commands.status import read_status, render_status

    settings = load(sources)
    report = read_status(open_lake(target, is_short_command=True), settings)
    if as_json:
        click.echo(report.to_json())
    else:
        render_status(report, settings)
