"""Output on the terminal."""

import click

from ingest.common.errors import printable


def print_line(line: str, *, err: bool = False) -> None:
    """Prints one line; control characters in names are escaped."""
    click.echo(printable(line), err=err)
