"""`tidemark prune`."""

import click

from ingest.cli import options
from ingest.cli.lake_session import open_lake
from ingest.cli.terminal import print_line


@click.command()
@options.TARGET
@click.argument("definitions", nargs=-1, metavar="[DEFINITION]...")
def prune(target: str | None, definitions: tuple[str, ...]) -> None:
    """Drop the rows and the op logs of deleted definitions: of all, or of those named.

    `tidemark plan` lists them. A definition is deleted when its model is no longer in the project, or is no longer a
    definition.
    """
    from ingest.project.definition_plan import prune_definitions

    for name in prune_definitions(open_lake(target, is_short_command=True).spark, definitions, target):
        print_line(f"{name}: dropped its rows and its op log")
