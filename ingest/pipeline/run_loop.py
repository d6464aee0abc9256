"""The run loop: streams and snapshots in threads, and dbt in this process on what they commit.

The runs of dbt follow one another; each models what is committed before it reads the stored positions. The parsed
project, Spark and its compiled code stay in memory between runs. The runs use the project as it was at the start until
it is deployed again (`apply`); with `reload` they deploy it whenever its files have changed.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ingest.common.errors import Failure, TidemarkError, Unavailable
from ingest.common.log_repeats import Repeats
from ingest.config.sources_file import Settings
from ingest.lake import Lake
from ingest.lake.model_tables import read_release
from ingest.pipeline.ingest_jobs import POLL_SECONDS, Jobs
from ingest.pipeline.maintenance import maintenance_steps, run_maintenance
from ingest.pipeline.supervisor import backoff
from ingest.project.dbt_project import NodeResult, Project, retry_on_concurrent_publish
from ingest.sources import source_kinds
from ingest.stream.open_batch import Batch

_log = logging.getLogger(__name__)

# Seconds after which a failed run is repeated without new commits: the first pause, doubled each time, and the longest.
RETRY_SECONDS, LONGEST_RETRY_SECONDS = 2.0, 300.0

# Maintenance begins after this many runs: it costs some hundredths of a second per table even if nothing is due.
MAINTENANCE_RUNS = 50


@dataclass(frozen=True)
class DbtRun:
    """One run of dbt: start and end (seconds since the epoch), and the results of its nodes. failure: of a node
    or a hook; other models may be published nevertheless.
    """

    started: float
    ended: float
    outcomes: tuple[NodeResult, ...]
    failure: Failure | None = None

    @property
    def waiting(self) -> list[str]:
        """The waiting definitions and the reason, one line per reason."""
        names_by_message: dict[str, list[str]] = {}
        for outcome in self.outcomes:
            if outcome.response.get("waiting"):
                names_by_message.setdefault(outcome.message, []).append(outcome.name)
        return [f"{', '.join(names)}: {message}" for message, names in names_by_message.items()]

    @property
    def positions(self) -> dict[str, int]:
        """By source: the position up to which this run has read the source."""
        of_checkpoints = (outcome for outcome in self.outcomes if outcome.name == "checkpoints")
        return next((outcome.response.get("positions") or {} for outcome in of_checkpoints), {})

    @property
    def changes(self) -> list[str]:
        """For each evaluated definition: why, and how many ops of each kind it wrote."""
        evaluations = [(outcome.name, outcome.response.get("evaluation")) for outcome in self.outcomes]
        return [f"{name}: {_describe_evaluation(evaluation)}" for name, evaluation in evaluations if evaluation]


def _describe_evaluation(evaluation: Mapping[str, Any]) -> str:
    rows = f"{evaluation['rows']:,} rows evaluated, " if evaluation.get("rows") is not None else ""
    return f"{evaluation['why']}, {rows}PUT {evaluation['put']:,}, REMOVE {evaluation['removed']:,}"


class Pipeline:
    """Everything in one process: `running()` starts the jobs; `model` runs dbt once, `loop` until `stop`."""

    def __init__(
        self,
        lake: Lake,
        settings: Settings,
        project: Project,
        *,
        reload: bool = False,
        select: Sequence[str] = (),
        then_command: Sequence[str] = (),
        apply_requested: threading.Event | None = None,
    ) -> None:
        """reload: deploy the project whenever its files have changed. select: dbt's selectors of other nodes to
        build in each run. then_command: a dbt command with its arguments, which runs after each release.
        apply_requested: set by `apply`, or before there is a pipeline.
        """
        self._project = project
        self._reloads, self._select, self._then_command = reload, select, then_command
        self._apply_requested = apply_requested or threading.Event()
        self._settings = settings
        self._lake = lake
        self._runs = 0
        self._maintenance: Iterator[list[str]] | None = None
        self._is_deployed = False
        self._repeats, self._maintenance_repeats, self._then_repeats = Repeats(_log), Repeats(_log), Repeats(_log)
        self._failed_runs = 0
        self._retry_at = 0.0
        self._then_failure: Failure | None = None
        self._has_news = threading.Event()
        self._awaits_position = True
        # By source and writer: the position of the last batch with rows.
        self._committed_positions: dict[tuple[str, int], int] = {}
        # By source: the position when the last run began.
        self._run_positions: dict[str, int] = {}
        self._run_tables_version = (0, 0)
        self.jobs = Jobs(lake, settings, on_stored=self._on_stored, on_over=self._has_news.set)

    @contextmanager
    def running(self, timeout: float | None = None) -> Iterator["Pipeline"]:
        """Starts the jobs, and stops them on exit. timeout: seconds after which they are stopped."""
        with self.jobs.running(timeout):
            yield self

    def stop(self) -> None:
        """End the jobs after the commits in progress, and `loop` after the run in progress."""
        self.jobs.request_stop()

    def apply(self) -> None:
        """Deploy the project as it is now with the next run, which begins at once."""
        self._apply_requested.set()
        self._has_news.set()

    def model(self) -> DbtRun:
        """Runs dbt on what is committed so far. Raises Failure if a node or a hook fails."""
        run = self._run_models()
        if run.failure is not None:
            raise run.failure
        return run

    def _run_models(self) -> DbtRun:
        self._runs += 1
        started = time.time()
        self.jobs.request_commit()
        tables_version = self._lake.tables.read_version()
        positions = {source: self.jobs.committed_position(source) or 0 for source in self._settings.sources}
        # Set before the run: a failed run is repeated after a pause, not with the next position.
        self._run_positions, self._run_tables_version = positions, tables_version
        outcomes, failure = self._run_dbt()
        run = DbtRun(started, time.time(), tuple(outcomes), failure)
        self._awaits_position = bool(run.waiting) or self._has_pending_snapshots(positions)
        if failure is None:
            self._forget_modelled_commits(run)
        return run

    def _forget_modelled_commits(self, run: DbtRun) -> None:
        """Commits that this run has read cause no other run. It has requested some of them itself: otherwise each run
        would cause the next one.
        """
        self._run_positions = {**self._run_positions, **run.positions}
        if self._has_news.is_set():
            self._has_news.clear()  # before the questions: a commit after them sets it again
            if self.jobs.is_over or self._apply_requested.is_set() or self._needs_run(self._settings.sources):
                self._has_news.set()

    @retry_on_concurrent_publish
    def _run_dbt(self) -> tuple[list[NodeResult], Failure | None]:
        self._update_project()
        outcomes, failure = self._project.build(deployed=self._is_deployed, others=self._select)
        self._is_deployed = self._is_deployed or failure is None
        return outcomes, failure

    def _update_project(self) -> None:
        """Parses the project again if it is to be deployed. With `reload`, raises Failure if it can't be parsed."""
        project = self._project
        if self._reloads:
            project = self._project.reparse_if_changed()
        elif self._apply_requested.is_set():
            self._apply_requested.clear()
            try:
                project = self._project.parse_again()
            except TidemarkError as error:
                _log.error("the project is not deployed, the last one stays: %s", error)
        if project is not self._project:
            _log.info("the dbt project is deployed as it is now")
            self._project, self._is_deployed = project, False
            if self._maintenance is not None:
                self.begin_maintenance()

    def _read_newest_release(self) -> int:
        """The id of the newest release, if a command follows each release; else 0."""
        release = read_release(self._lake.spark) if self._then_command else None
        return release["release_id"] if release else 0

    def _run_then_command(self) -> None:
        """Runs the dbt command that follows a release. If it fails, the next release runs it again."""
        try:
            self._project.invoke(*self._then_command)
        except Failure as error:
            self._then_repeats.occurred(str(error), logging.ERROR)
            self._then_failure = error
        else:
            self._then_repeats.over(f"`dbt {self._then_command[0]}` after a release works again")
            self._then_failure = None

    def maintain(self) -> None:
        """Runs the maintenance that is due, and logs it. A failure is logged; the next call tries again."""
        lines = run_maintenance(self._lake, self._settings.settings, self._project)
        self._maintenance = ([line] for line in lines)
        while self._maintenance is not None:
            self._do_maintenance_step()

    def begin_maintenance(self) -> None:
        """Begins the maintenance that is due: `loop` does its steps between runs, so no run waits for all of them."""
        self._maintenance = maintenance_steps(self._lake, self._settings.settings, self._project)

    def _do_maintenance_step(self) -> None:
        """Does the next step of a maintenance in progress, and logs it. A failure ends the maintenance."""
        if self._maintenance is None:
            return
        try:
            lines = next(self._maintenance, None)
        except Failure as error:
            self._maintenance_repeats.occurred(str(error))
            self._maintenance = None
            return
        for line in lines or ():
            _log.info("%s", line)
        if lines is None:
            self._maintenance_repeats.over("maintenance works again")
            self._maintenance = None

    def loop(
        self,
        on_run: Callable[[DbtRun], None] = lambda _: None,
        until_caught_up: bool = False,
    ) -> None:
        """Runs dbt after every commit until `stop`; until_caught_up: until everything committed in the sources before
        the call is in the outputs. Does not wait for failed sources.

        Raises the error of the last run, the error of a source if all have failed, and Failure if the timeout expires.
        """
        targets = self.jobs.catch_up_targets() if until_caught_up else {}
        caught_up = False
        failure: Failure | None = None
        while not caught_up:
            self._wait(until_caught_up)
            if self.jobs.is_over:
                break
            if had_news := self._has_news.is_set():
                self._has_news.clear()
            has_reached = until_caught_up and self.jobs.has_reached(targets)
            if had_news or has_reached or self._is_retry_due():
                failure = self._try_run_models(on_run)
            if not self.jobs.is_over:
                self._do_maintenance_step()
            caught_up = has_reached and not isinstance(failure, Unavailable)
        self.jobs.raise_if_all_failed()
        if caught_up:  # a process that a scheduler starts does few runs
            self.maintain()
            if failure is not None:
                raise failure
        elif until_caught_up:
            self.jobs.report_missing(targets)

    def _wait(self, until_caught_up: bool) -> None:
        """Waits for a commit, or until a failed run is due again. Returns at once during maintenance."""
        seconds = max(0.0, self._retry_at - time.monotonic()) if self._failed_runs else None
        if until_caught_up:
            seconds = POLL_SECONDS
        if self._maintenance is not None:
            seconds = 0.0
        self._has_news.wait(seconds)

    def _is_retry_due(self) -> bool:
        return self._failed_runs > 0 and time.monotonic() >= self._retry_at

    def _try_run_models(self, on_run: Callable[[DbtRun], None]) -> Failure | None:
        """Runs dbt; returns the failure of the run, or of the last command that followed a release.

        A failed definition does not delay others, commits or maintenance. A later run evaluates it again.
        """
        try:
            last_release = self._read_newest_release()
            run = self._run_models()
            failure = run.failure
            if failure is None:
                on_run(run)
            if self._read_newest_release() > last_release:
                self._run_then_command()
        except Failure as error:
            failure = error
        except Exception as error:
            if not (failure := source_kinds.as_unavailable(error, self._lake.location)):
                raise
        if failure is None:
            self._failed_runs = 0
            self._repeats.over("the models run again")
        else:
            self._on_failed_run(failure)
        if self._runs % MAINTENANCE_RUNS == 0 and self._maintenance is None:
            self.begin_maintenance()
        return failure or self._then_failure

    def _on_failed_run(self, failure: Failure) -> None:
        self._failed_runs += 1
        self._retry_at = time.monotonic() + backoff(self._failed_runs, RETRY_SECONDS, LONGEST_RETRY_SECONDS)
        if isinstance(failure, Unavailable):
            self._repeats.occurred(f"{failure} Retrying.", key=failure.what)
        else:
            self._repeats.occurred(str(failure), logging.ERROR)
            try:
                self._awaits_position = self._has_pending_snapshots(self._run_positions)
            except Exception as error:
                if source_kinds.as_unavailable(error, self._lake.location) is None:
                    raise
                self._awaits_position = True

    def _on_stored(self, batch: Batch) -> None:
        """Called in a writer's thread. A position without rows causes a run only if something waits for it: a snapshot,
        a new or dropped table, rows of another writer, or own rows past the stored position.
        """
        position = batch.position
        if batch.rows:
            self._committed_positions[position.source, position.writer] = (
                position.position + batch.has_events_past_position
            )
        if self._needs_run([position.source]):
            self._has_news.set()

    def _needs_run(self, sources: Iterable[str]) -> bool:
        """Whether a run has something to read: events of `sources`, tables, or what the last run waited for."""
        return (
            any(self._has_unread_events(source) for source in sources)
            or self._awaits_position
            or self._lake.tables.read_version() != self._run_tables_version
        )

    def _has_unread_events(self, source: str) -> bool:
        """Whether events of a source are committed that the last run has not read."""
        committed = (number for (name, _), number in list(self._committed_positions.items()) if name == source)
        return max(committed, default=0) > self._run_positions.get(source, 0)

    def _has_pending_snapshots(self, positions: Mapping[str, int]) -> bool:
        """Whether a snapshot is pending, or the end of a snapshot or table is not yet below `positions`."""
        return any(
            table.is_pending or max(table.complete_lsn or 0, table.ended_lsn or 0) >= position
            for source, position in positions.items()
            for table in self._lake.tables.read(source).values()
        )
