"""The warm loop: streams and snapshots in threads, and dbt in this process on what they land.

Runs of dbt follow one another; each models what landed during the one before it. The parsed project, Spark and its
compiled code stay in memory between runs. A project whose files have changed is parsed again before the next run.
"""

import logging
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from ingest.common.errors import Failure, Unavailable
from ingest.common.log_repeats import Repeats
from ingest.config.sources_file import Settings
from ingest.lake import Lake
from ingest.pipeline.ingest_jobs import LOOK_SECONDS, Jobs
from ingest.pipeline.maintenance import maintain
from ingest.pipeline.supervisor import backoff
from ingest.project.dbt_project import Outcome, Project, repeated_if_overtaken
from ingest.sources import source_kinds
from ingest.stream.open_batch import Batch

_log = logging.getLogger(__name__)

# Later runs skip views, seeds and dbt's artifacts, which the first run has written. Unit tests check the code, not the
# data. Data tests that read a view are not skipped with it.
_LEFT_OUT = ("config.materialized:view", "resource_type:seed", "resource_type:unit_test")
_LATER_RUNS = ("--no-write-json", "--indirect-selection", "empty", "--exclude", *_LEFT_OUT)
_FIRST_RUN = ("--exclude", "resource_type:unit_test")

# The end of the message of a definition that was evaluated.
_OPS = re.compile(r", PUT \d+, REMOVE \d+$")

# Seconds after which a failed run is repeated though nothing has landed: the first pause, doubled each time, and the
# longest.
RETRY_SECONDS, LONGEST_RETRY_SECONDS = 2.0, 300.0

# Maintenance is considered after this many runs: it costs some tenths of a second per table even if nothing is due.
UPKEEP_RUNS = 50


@dataclass(frozen=True)
class ModelRun:
    """One run of dbt: when it began and ended (seconds since the epoch), and the outcomes of its nodes."""

    started: float
    ended: float
    outcomes: tuple[Outcome, ...]

    @property
    def waiting(self) -> list[str]:
        """Which definitions wait, and for what."""
        names: dict[str, list[str]] = {}
        for outcome in self.outcomes:
            if outcome.message.startswith("waiting for"):
                names.setdefault(outcome.message, []).append(outcome.name)
        return [f"{', '.join(named)}: {message}" for message, named in names.items()]

    @property
    def changes(self) -> list[str]:
        """What the run did to each definition that it evaluated: why, and how many ops of each kind it wrote."""
        return [f"{outcome.name}: {outcome.message}" for outcome in self.outcomes if _OPS.search(outcome.message)]


class Pipeline:
    """Everything in one process: `running()` starts the jobs; `model` runs dbt once, `loop` until it is told to end."""

    def __init__(self, lake: Lake, settings: Settings, project: Project) -> None:
        self._project = project
        self._settings = settings
        self._lake = lake
        self._runs = 0
        self._is_deployed = False
        self._repeats, self._upkeep_repeats = Repeats(_log), Repeats(_log)
        self._failed_runs = 0
        self._retry_at = 0.0
        self._news = threading.Event()
        self._unsettled = True
        # By source and writer: the position of the last landing with rows.
        self._landed: dict[tuple[str, int], int] = {}
        # By source: the position when the last run began.
        self._seen: dict[str, int] = {}
        self._seen_tables = (0, 0)
        self.jobs = Jobs(lake, settings, on_stored=self._stored, on_over=self._news.set)

    @contextmanager
    def running(self, timeout: float | None = None) -> Iterator["Pipeline"]:
        """Starts the jobs, and stops them on exit. timeout: seconds after which they are told to end."""
        with self.jobs.running(timeout):
            yield self

    def stop(self) -> None:
        """End the jobs after the commits in progress, and `loop` after the run in progress."""
        self.jobs.end()

    def model(self) -> ModelRun:
        """Run dbt on what is landed so far."""
        self._runs += 1
        started = time.time()
        tables = self._tables()
        landed = {source: self.jobs.landed(source) or 0 for source in self._settings.sources}
        # Set before the run: a run that fails is repeated after a pause, not with the next position.
        self._seen, self._seen_tables = landed, tables
        outcomes = self._build()
        run = ModelRun(started, time.time(), tuple(outcomes))
        self._unsettled = bool(run.waiting) or self._unfinished(landed)
        return run

    @repeated_if_overtaken
    def _build(self) -> list[Outcome]:
        project = self._project.renewed()
        if project is not self._project:
            _log.info("the dbt project has changed; parsing it again")
            self._project, self._is_deployed = project, False
        outcomes = project.invoke("build", *(_LATER_RUNS if self._is_deployed else _FIRST_RUN))
        self._is_deployed = True
        return outcomes

    def maintain(self) -> None:
        """Do the maintenance that is due, and log it. What fails is retried the next time."""
        try:
            for line in maintain(self._lake, self._settings.settings, self._project):
                _log.info("%s", line)
        except Failure as error:
            self._upkeep_repeats.occurred(str(error))
        else:
            self._upkeep_repeats.over("maintenance works again")

    def loop(
        self,
        on_run: Callable[[ModelRun], None] = lambda _: None,
        until_caught_up: bool = False,
    ) -> None:
        """Run dbt whenever something has landed, until `stop`; until_caught_up: until all that was committed in
        the sources when this began is in the outputs. Does not wait for sources that have failed.

        Raises what the last run failed with, what a source has failed with if all have, and Failure if the timeout
        expires first.
        """
        targets = self.jobs.watermarks() if until_caught_up else {}
        caught_up = False
        failure: Failure | None = None
        while not caught_up:
            self._wait(until_caught_up)
            if self.jobs.is_over:
                break
            had_news = self._news.is_set() or self._is_retry_due()
            self._news.clear()
            has_landed = until_caught_up and self.jobs.has_landed(targets)
            if had_news or has_landed:
                failure = self._modelled(on_run)
            caught_up = has_landed and not isinstance(failure, Unavailable)
        self.jobs.check()
        if caught_up:  # a process that a scheduler starts does few runs
            self.maintain()
            if failure is not None:
                raise failure
        elif until_caught_up:
            self.jobs.say_what_is_left(targets)

    def _wait(self, until_caught_up: bool) -> None:
        """Wait for news, or until a failed run is to be repeated."""
        seconds = max(0.0, self._retry_at - time.monotonic()) if self._failed_runs else None
        if until_caught_up:
            seconds = LOOK_SECONDS
        self._news.wait(seconds)

    def _is_retry_due(self) -> bool:
        return self._failed_runs > 0 and time.monotonic() >= self._retry_at

    def _modelled(self, on_run: Callable[[ModelRun], None]) -> Failure | None:
        """Run dbt; what the run fails with. A definition that fails does not delay others, landings or maintenance.

        A later run evaluates it again.
        """
        failure: Failure | None = None
        try:
            on_run(self.model())
        except Failure as error:
            failure = error
        except Exception as error:
            if not (failure := source_kinds.unavailable(error, self._lake.location)):
                raise
        if failure is None:
            self._failed_runs = 0
            self._repeats.over("the models run again")
        else:
            self._failed(failure)
        if self._runs % UPKEEP_RUNS == 0:
            self.maintain()
        return failure

    def _failed(self, failure: Failure) -> None:
        self._failed_runs += 1
        self._retry_at = time.monotonic() + backoff(self._failed_runs, RETRY_SECONDS, LONGEST_RETRY_SECONDS)
        if isinstance(failure, Unavailable):
            self._repeats.occurred(f"{failure} Retrying.", key=failure.what)
        else:
            self._repeats.occurred(str(failure), logging.ERROR)
            try:
                self._unsettled = self._unfinished(self._seen)
            except Exception as error:
                if source_kinds.unavailable(error, self._lake.location) is None:
                    raise
                self._unsettled = True

    def _stored(self, batch: Batch) -> None:
        """In a writer's thread. A position without rows is news only if something waits for it: a snapshot, a new or
        dropped table, rows of another writer, or own rows that were not below the position of their landing.
        """
        at = batch.position
        if batch.rows:
            self._landed[at.source, at.writer] = at.position + batch.ends_in_transaction
        unseen = max((p for (source, _), p in list(self._landed.items()) if source == at.source), default=0)
        if unseen > self._seen.get(at.source, 0) or self._unsettled or self._tables() != self._seen_tables:
            self._news.set()

    def _tables(self) -> tuple[int, int]:
        """A value that changes with every change of raw.source_tables."""
        query = "select count(*) as registered, coalesce(sum(rev), 0) as revisions from raw.source_tables"
        row = self._lake.spark.sql(query).collect()[0]
        return row.registered, row.revisions

    def _unfinished(self, landed: Mapping[str, int]) -> bool:
        """Whether a snapshot is in progress, or the end of a snapshot or table is not yet below what was `landed`."""
        return any(
            table.is_pending or max(table.complete_lsn or 0, table.ended_lsn or 0) >= at
            for source, at in landed.items()
            for table in self._lake.tables.read(source).values()
        )
