"""`tidemark plan`."""

import sys

import click

from ingest.cli import options
from ingest.cli.lake_session import open_lake


@click.command()
@options.TARGET
@click.option("--json", "as_json", is_flag=True, help="JSON lines, for programs.")
def plan(target: str | None, as_json: bool) -> None:
    """Show what the next run will do with each definition.

    Each one is new, changed, unchanged, waiting, deleted or invalid, with the number of input rows to evaluate.
    Changes nothing. Exit code 1 if a definition is invalid.
    """
    from ingest.project.definition_plan import make_plan, render_plan

    steps = make_plan(open_lake(target, is_short_command=True).spark, target)
    if as_json:
        for step in steps:
            click.echo(step.to_json())
    else:
        render_plan(steps)
    if any(step.state == "invalid" for step in steps):
        sys.exit(1)
