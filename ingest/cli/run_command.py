"""`tidemark run`."""

import logging
import shlex
import threading
from pathlib import Path

import click

from ingest.cli import options
from ingest.cli.lake_session import open_lake
from ingest.cli.stop_signals import call_on_hangup, call_on_stop_signal
from ingest.config.sources_file import load

# The dbt commands that may follow a release.
_THEN_COMMANDS = ("build", "run", "seed", "snapshot", "test")


@click.command()
@options.job_options
@click.option(
    "--select",
    multiple=True,
    metavar="SELECTOR",
    help="Also build these nodes of the project in each run, by dbt's selectors; may be repeated.",
)
@click.option(
    "--then",
    default="",
    metavar="COMMAND",
    help='A dbt command to run after each release, such as "build --select tag:hourly".',
)
@click.option("--reload", is_flag=True, help="For development: deploy the project whenever its files have changed.")
def run(
    sources: str,
    target: str | None,
    source_names: tuple[str, ...],
    until_caught_up: bool,
    timeout: float | None,
    select: tuple[str, ...],
    then: str,
    reload: bool,
) -> None:
    """Stream, snapshot and run dbt after each commit: everything in one process.

    A run builds the definitions and what they read. The project's other models run by --select or --then, or by dbt
    itself. The project stays as it was at the start until `tidemark apply`, or SIGHUP, deploys it as it is then.

    With --source the other sources may have separate processes; dbt models the committed data of all sources. A source
    that fails is retried while the others go on; exit code 1 if one is in a failed state at the end. A full disk, or a
    catalog that does not answer, is retried too.
    """
    from ingest.pipeline.run_loop import DbtRun, Pipeline
    from ingest.project.dbt_project import Project
    from ingest.project.running_processes import register_process

    def log_run(dbt_run: DbtRun) -> None:
        log.info(
            "models ran in %.1f s%s", dbt_run.ended - dbt_run.started, "".join(f"; {line}" for line in dbt_run.waiting)
        )
        for line in dbt_run.changes:
            log.info("%s", line)

    log = logging.getLogger("tidemark")
    options.check_timeout(until_caught_up, timeout)
    try:
        then_command = shlex.split(then)
    except ValueError as error:
        raise click.UsageError(f"--then can't be read: {error}.") from error
    if then_command and then_command[0] not in _THEN_COMMANDS:
        raise click.UsageError(f"--then takes one of dbt's commands {', '.join(_THEN_COMMANDS)}.")
    settings = load(sources).only(source_names)
    # `tidemark apply` finds this process from its registration on, before there is a project to deploy.
    apply_requested = threading.Event()
    call_on_hangup(apply_requested.set)
    with register_process(Path()) as folder:
        project = Project(target)
        if not reload:
            project.freeze(folder)
        pipeline = Pipeline(
            open_lake(target),
            settings,
            project,
            reload=reload,
            select=select,
            then_command=then_command,
            apply_requested=apply_requested,
        )
        call_on_stop_signal(pipeline.stop, "after the commits and the run of the models in progress")
        call_on_hangup(pipeline.apply)
        with pipeline.running(timeout):
            pipeline.loop(log_run, until_caught_up)
