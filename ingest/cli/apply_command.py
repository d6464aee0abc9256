"""`tidemark apply`."""

import sys
from pathlib import Path

import click

from ingest.cli import options
from ingest.cli.lake_session import open_lake
from ingest.cli.terminal import print_line
from ingest.common.errors import Failure


@click.command()
@options.TARGET
def apply(target: str | None) -> None:
    """Deploy the project as it is now: show the plan, and let the project's `tidemark run` take it.

    Exit code 1, and nothing is deployed, if a definition is invalid, or no `tidemark run` of this project runs on this
    machine. Exit code 1 also if one runs on another machine, or in another container.
    """
    from ingest.project.definition_plan import make_plan, render_plan
    from ingest.project.running_processes import signal_processes

    steps = make_plan(open_lake(target, is_short_command=True).spark, target)
    render_plan(steps)
    if invalid := [step.definition for step in steps if step.state == "invalid"]:
        print_line(f"tidemark: nothing is deployed, as these are invalid: {', '.join(invalid)}.", err=True)
        sys.exit(1)
    process_ids, machines = signal_processes(Path())
    if process_ids:
        print_line(f"deployed by `tidemark run`, process {', '.join(map(str, process_ids))}; its log says what it does")
    if machines:
        where = f"on another machine or in another container ({', '.join(machines)})"
        raise Failure(f"a `tidemark run` of this project runs {where}", "", "Send SIGHUP there")
    if not process_ids:
        raise Failure(
            "no `tidemark run` of this project runs on this machine", "", "Start it, or send SIGHUP where it runs"
        )
