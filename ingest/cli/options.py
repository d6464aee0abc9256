"""Options that several commands have."""

from collections.abc import Callable
from typing import Any

import click

UNTIL_CAUGHT_UP = click.option(
    "--until-caught-up",
    is_flag=True,
    help="For cron: end with exit code 0 when everything committed before the start is in the lake "
    "(`tidemark run`: and published). "
    "Otherwise run until SIGTERM.",
)
TIMEOUT = click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="With --until-caught-up: end with exit code 1 after this time, and list what is missing.",
)
SOURCE_NAMES = click.option(
    "--source", "source_names", multiple=True, metavar="NAME", help="Only this source; may be repeated. Default: all."
)
TARGET = click.option(
    "--target",
    metavar="NAME",
    help="Output of the profile in profiles.yml. Default: its own, in a new project TIDEMARK_TARGET, or local.",
)
SOURCES = click.option(
    "--sources",
    default="sources.yml",
    show_default=True,
    type=click.Path(dir_okay=False),
    help="The file with the sources to replicate.",
)


def job_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of the commands that run jobs."""
    for option in (TIMEOUT, UNTIL_CAUGHT_UP, SOURCE_NAMES, TARGET, SOURCES):
        command = option(command)
    return command


def check_timeout(until_caught_up: bool, timeout: float | None) -> None:
    """Raises click.UsageError for --timeout without --until-caught-up."""
    if timeout is not None and not until_caught_up:
        raise click.UsageError("--timeout requires --until-caught-up.")
