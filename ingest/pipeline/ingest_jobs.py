"""The ingest jobs of all sources in one process: stream writers and snapshotters, with one supervisor for each source.

The sources share only the lake. The jobs of a source that fails are reported and restarted; the other sources go on.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from ingest.common.errors import Failure, TidemarkError, Unavailable
from ingest.common.log_repeats import Repeats
from ingest.config.sources_file import Settings, Source
from ingest.lake import Lake, spark_session
from ingest.lake.source_tables import SourceTable
from ingest.pipeline.supervisor import Job, Supervisor, describe_unexpected
from ingest.snapshot.snapshotter import Snapshotter
from ingest.sources import source_kinds
from ingest.sources.interface.source_jobs import SourceJobs
from ingest.stream.batch_committer import CommitHooks
from ingest.stream.open_batch import Batch
from ingest.stream.stream_writer import StreamWriter

_log = logging.getLogger(__name__)

# Seconds between two checks whether a process with --until-caught-up has caught up.
POLL_SECONDS = 0.5
# With a timeout, the seconds that stopped jobs have to end: a commit takes seconds, and a server that does not answer
# would block the command forever.
END_SECONDS = 60.0
# Seconds between two checks whether Spark's Java process still runs.
JAVA_POLL_SECONDS = 1.0


@dataclass(frozen=True)
class _JobSet:
    """The jobs of a source, as last opened."""

    source: SourceJobs
    writers: tuple[StreamWriter, ...]
    snapshotter: Snapshotter | None


class Jobs:
    """Streams and snapshots of the sources in `settings`; either kind may be left out.

    writers: the numbers of the stream writers to run here (None: all).
    on_stored: called by a writer's thread with each batch whose position is stored.
    on_over: called when `is_over` has become true.
    """

    def __init__(
        self,
        lake: Lake,
        settings: Settings,
        *,
        stream: bool = True,
        snapshot: bool = True,
        writers: Collection[int] | None = None,
        on_stored: Callable[[Batch], None] = lambda _: None,
        on_over: Callable[[], None] = lambda: None,
    ) -> None:
        self._lake = lake
        self._location = lake.location  # read now: later the lake may not answer
        self._settings = settings
        self._kinds = (stream, snapshot)
        self._writer_numbers = writers
        self._on_stored = on_stored
        self._on_over = on_over
        self._job_sets: dict[str, _JobSet] = {}
        # By source: the revisions of its tables, and a position past their registration.
        self._registrations: dict[str, tuple[dict[str, int], int]] = {}
        self._supervisors = [self._make_supervisor(source) for source in settings.sources.values()]
        self._repeats = Repeats(_log)
        self._changed = threading.Condition()
        self._over = threading.Event()
        self._stopping = threading.Event()
        self._timed_out = False
        self._java_failure: Failure | None = None

    @property
    def is_over(self) -> bool:
        """Whether a stop was requested, the timeout has expired, or all sources have failed."""
        return self._over.is_set()

    @property
    def writers(self) -> list[StreamWriter]:
        """The stream writers that run here."""
        return [writer for job_set in list(self._job_sets.values()) for writer in job_set.writers]

    @property
    def snapshotters(self) -> list[Snapshotter]:
        """The snapshotters that run here."""
        return [job_set.snapshotter for job_set in list(self._job_sets.values()) if job_set.snapshotter]

    @contextmanager
    def running(self, timeout: float | None = None) -> Iterator["Jobs"]:
        """Starts the jobs; on exit stops them, waits for them, and raises the error of a failed source.

        Enters when the jobs of one source run, or after one attempt to start those of every source. timeout: seconds
        after which the jobs are stopped; a job that then does not end, because its server does not answer, is
        abandoned. The jobs are stopped, and Failure is raised, if Spark's Java process ends.
        """
        timer = threading.Timer(timeout, self._time_out) if timeout is not None else None
        try:
            if timer:
                timer.daemon = True
                timer.start()
            threading.Thread(target=self._watch_java, name="java watch", daemon=True).start()
            for supervisor in self._supervisors:
                supervisor.start()
            with self._changed:
                self._changed.wait_for(self._has_begun)
            yield self
        finally:
            if timer:
                timer.cancel()
            self.request_stop()
            self._join_supervisors(None if timeout is None and self._java_failure is None else END_SECONDS)
        if self._java_failure is not None:
            raise self._java_failure
        self.raise_failed()

    def _join_supervisors(self, seconds: float | None) -> None:
        """Waits until the jobs have ended, up to `seconds` (None: without a limit)."""
        deadline = None if seconds is None else time.monotonic() + seconds
        for supervisor in self._supervisors:
            if not supervisor.join(None if deadline is None else max(0.0, deadline - time.monotonic())):
                message = "its jobs wait for the server and do not end; uncommitted changes will be read again"
                _log.warning("source %s: %s", supervisor.name, message)

    def request_stop(self) -> None:
        """Makes `wait` return and the jobs end after the commits in progress."""
        self._stopping.set()
        for supervisor in self._supervisors:
            supervisor.stop()
        self._set_over()

    def wait(self, until_caught_up: bool = False) -> None:
        """Waits until `request_stop`, or until all sources have failed; until_caught_up: or until everything committed
        before the call is in the lake.

        Raises the error of a source if all have failed, and Failure if the timeout expires first.
        """
        targets = self.catch_up_targets() if until_caught_up else {}
        while not self._over.wait(POLL_SECONDS if until_caught_up else None):
            if self.has_reached(targets):
                return
        self.raise_if_all_failed()
        if until_caught_up:
            self.report_missing(targets)

    def raise_failed(self) -> None:
        """Raises the error of a failed source, if there is one."""
        for supervisor in self._supervisors:
            if supervisor.is_failed and supervisor.error is not None:
                raise supervisor.error

    def raise_if_all_failed(self) -> None:
        """Raises the error of a source if all sources have failed."""
        if self._are_all_failed():
            self.raise_failed()

    def report_missing(self, targets: Mapping[str, int]) -> None:
        """After a stop before the targets were reached: logs what is missing and why. Raises Failure with that if the
        timeout has expired.
        """
        missing_lines = [
            line for supervisor in self._supervisors for line in self._describe_missing(supervisor, targets)
        ]
        if self._timed_out:
            fix = "Committed batches are kept; run the command again, or raise --timeout"
            raise Failure(
                "not caught up before the timeout", "; ".join(missing_lines) or "the last run of the models", fix
            )
        for line in missing_lines:
            _log.warning("not caught up: %s", line)

    def catch_up_targets(self) -> dict[str, int]:
        """By source: a position past everything committed so far. Unreachable sources are missing."""
        targets: dict[str, int] = {}
        self._add_targets(targets)
        return targets

    def _add_targets(self, targets: dict[str, int]) -> None:
        for name, job_set in list(self._job_sets.items()):
            if name not in targets:
                try:
                    targets[name] = job_set.source.emit_marker()
                except Exception as error:
                    if not isinstance(error, TidemarkError) and source_kinds.as_unavailable(error, name) is None:
                        raise
                    _log.debug("source %s: can't read its current position: %s", name, error)

    def has_reached(self, targets: dict[str, int]) -> bool:
        """Whether the jobs that run here have committed everything before `targets`; failed sources are ignored.

        Adds the targets of sources that were unreachable before. False if the lake does not answer.
        """
        try:
            return self._have_jobs_reached(targets)
        except Exception as error:
            if known_error := source_kinds.as_unavailable(error, self._location):
                self._repeats.occurred(f"{known_error} Retrying.", key=known_error.what)
                return False
            raise

    def _have_jobs_reached(self, targets: dict[str, int]) -> bool:
        self._add_targets(targets)
        return all(
            supervisor.is_failed
            or (supervisor.name in targets and self._source_has_reached(supervisor.name, targets[supervisor.name]))
            for supervisor in self._supervisors
        )

    def _source_has_reached(self, source: str, target: int) -> bool:
        committed = self.committed_position(source)  # first: these events may have queued a table
        tables = list(self._lake.tables.read(source).values())
        if self._select_pending_tables(source, tables):
            return False
        return committed is None or committed > max(target, self._find_position_past_registrations(source, tables))

    def _select_pending_tables(self, source: str, tables: Iterable[SourceTable]) -> list[SourceTable]:
        """The tables that a snapshotter here still has to read."""
        snapshotter = self._job_sets[source].snapshotter if source in self._job_sets else None
        if snapshotter is None:
            return []
        return [table for table in tables if table.is_pending and table.table_id not in snapshotter.unreadable]

    def _describe_missing(self, supervisor: Supervisor, targets: Mapping[str, int]) -> list[str]:
        """Lines with what the lake lacks of a source, and why."""
        source, target = supervisor.name, targets.get(supervisor.name)
        if supervisor.error is not None:
            return [f"source {source}: {_describe_error(supervisor.error)}"]
        if target is None:
            open_transactions = source_kinds.find_open_transactions(
                self._settings.sources[source], self._settings.settings
            )
            return [f"source {source}: its jobs have not started{_describe_open_transactions(open_transactions)}"]
        lines = []
        pending_tables = self._select_pending_tables(source, self._lake.tables.read(source).values())
        if pending_tables:
            open_transactions = source_kinds.find_open_transactions(
                self._settings.sources[source], self._settings.settings
            )
            names = ", ".join(sorted(table.table_name for table in pending_tables))
            lines.append(
                f"source {source}: snapshots not complete: {names}{_describe_open_transactions(open_transactions)}"
            )
        committed = self.committed_position(source)
        if committed is not None and committed <= target:
            committed_text, target_text = (
                source_kinds.format_position(self._settings.sources[source], position)
                for position in (committed, target)
            )
            lines.append(f"source {source}: committed up to {committed_text} of {target_text}")
        return lines

    def _find_position_past_registrations(self, source: str, tables: Iterable[SourceTable]) -> int:
        """A position past the registration of complete snapshots.

        A run of the models that was in progress at their registration has not seen them, and the next run considers
        them only at a higher position.
        """
        revisions = {table.table_id: table.rev for table in tables}
        known_revisions, position = self._registrations.get(source, ({}, 0))
        if revisions != known_revisions:
            position = self._job_sets[source].source.emit_marker()
            self._registrations[source] = revisions, position
        return position

    def request_commit(self) -> None:
        """Asks the writers that run here to commit their open batches early: a run of the models begins."""
        for writer in self.writers:
            writer.request_commit()

    def committed_position(self, source: str) -> int | None:
        """The minimum position of a source's writers that run here; None if none runs here."""
        return min((writer.progress.position.position for writer in self._get_writers(source)), default=None)

    def _get_writers(self, source: str) -> tuple[StreamWriter, ...]:
        return self._job_sets[source].writers if source in self._job_sets else ()

    def _make_supervisor(self, source: Source) -> Supervisor:
        def explain(error: BaseException) -> Unavailable | None:
            return source_kinds.as_unavailable(error, self._location)

        return Supervisor(source.name, lambda: self._open_jobs(source), explain, self._on_change)

    def _open_jobs(self, config: Source) -> list[Job]:
        """Creates the jobs of a source from the stored state."""
        self._lake.sources.upsert(config.name, config.snapshot_hold)
        writer_numbers = self._writer_numbers if self._kinds[0] else ()
        source = source_kinds.open_jobs(
            self._lake, config, self._settings.settings, running=writer_numbers, wait=self._stopping.wait
        )
        try:
            job_set, jobs = self._create_jobs(source)
        except BaseException:
            source.release_resources()
            raise
        self._job_sets[source.name] = job_set
        return jobs

    def _create_jobs(self, source: SourceJobs) -> tuple[_JobSet, list[Job]]:
        stream, snapshot = self._kinds
        jobs: list[Job] = []
        snapshotter = source.snapshotter() if snapshot else None
        writers = []
        for source_stream in source.streams if stream else ():
            position = source_stream.position
            if self._writer_numbers is None or position.writer in self._writer_numbers:
                writer = source.writer(source_stream, CommitHooks(after_store=self._on_writer_stored), snapshotter)
                writers.append(writer)
                jobs.append(Job(f"stream {source.name} {position.writer}", writer.run, writer.stop))
        if snapshotter:
            jobs.append(Job(f"snapshot {source.name}", snapshotter.run, snapshotter.stop))
        else:
            source.release_resources()
        return _JobSet(source, tuple(writers), snapshotter), jobs

    def _on_writer_stored(self, batch: Batch) -> None:
        """Called in a writer's thread. The batch is visible once all other writers, including idle ones, reach it."""
        if batch.rows:
            for writer in self._get_writers(batch.position.source):
                writer.request_position()
        self._on_stored(batch)

    def _on_change(self, supervisor: Supervisor) -> None:
        """Called in a supervisor's thread: its source has failed or recovered."""
        message = None if supervisor.error is None else _describe_error(supervisor.error)
        try:
            self._lake.sources.store_error(supervisor.name, message)
        except Exception as failure:  # noqa: BLE001  # the lake may be what fails
            _log.debug("the state of source %s can't be stored", supervisor.name, exc_info=failure)
        with self._changed:
            self._changed.notify_all()
        if self._are_all_failed():
            self._set_over()

    def _are_all_failed(self) -> bool:
        """Whether no source runs or can recover without manual action."""
        return all(supervisor.is_failed for supervisor in self._supervisors)

    def _has_begun(self) -> bool:
        """Whether `running` may enter: there is something to wait for or to raise."""
        supervisors = self._supervisors
        return self.is_over or any(s.has_opened for s in supervisors) or all(s.was_tried for s in supervisors)

    def _watch_java(self) -> None:
        while not self._stopping.wait(JAVA_POLL_SECONDS):
            if spark_session.has_java_exited():
                self._java_failure = spark_session.find_exit_failure()
                self._set_over()
                return

    def _time_out(self) -> None:
        self._timed_out = True
        self.request_stop()

    def _set_over(self) -> None:
        if not self._over.is_set():
            self._over.set()
            with self._changed:
                self._changed.notify_all()
            self._on_over()


def _describe_error(error: BaseException) -> str:
    return str(error) if isinstance(error, TidemarkError) else describe_unexpected(error)


def _describe_open_transactions(transactions: Iterable[str]) -> str:
    text = ", ".join(transactions)
    return f", waiting for open transactions: {text}" if text else ""
