"""`tidemark run`."""

import logging

import click

from ingest.cli import options
from ingest.cli.lake_session import open_lake
from ingest.cli.stop_signals import call_on_stop_signal
from ingest.config.sources_file import load


@click.command()
@options.job_options
def run(sources: str, target: str | None, names: tuple[str, ...], until_caught_up: bool, timeout: float | None) -> None:
    """Stream, snapshot and run dbt after each commit: everything in one process.

    With --source the other sources may have separate processes; dbt models the committed data of all sources. A source
    that fails is retried while the others go on; exit code 1 if one is in a failed state at the end. A full disk, or a
    catalog that does not answer, is retried too.
    """
    from ingest.pipeline.run_loop import DbtRun, Pipeline
    from ingest.project.dbt_project import Project

    def log_run(dbt_run: DbtRun) -> None:
        log.info(
            "models ran in %.1f s%s", dbt_run.ended - dbt_run.started, "".join(f"; {line}" for line in dbt_run.waiting)
        )
        for line in dbt_run.changes:
            log.info("%s", line)

    log = logging.getLogger("tidemark")
    options.check_timeout(until_caught_up, timeout)
    settings = load(sources).only(names)
    pipeline = Pipeline(open_lake(target), settings, Project(target))
    call_on_stop_signal(pipeline.stop, "after the commits and the run of the models in progress")
    with pipeline.running(timeout):
        pipeline.loop(log_run, until_caught_up)
