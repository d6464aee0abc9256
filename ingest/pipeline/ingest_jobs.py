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
from ingest.lake import Lake
from ingest.lake.source_tables import SourceTable
from ingest.pipeline.supervisor import Job, Supervisor, unforeseen
from ingest.snapshot.snapshotter import Snapshotter
from ingest.sources import source_kinds
from ingest.sources.source_jobs import SourceJobs
from ingest.stream.batch_committer import CommitHooks
from ingest.stream.open_batch import Batch
from ingest.stream.stream_writer import StreamWriter

_log = logging.getLogger(__name__)

# How often a process with --until-caught-up looks whether it has caught up.
LOOK_SECONDS = 0.5
# With a timeout, jobs that were told to end are waited for this long: commits take seconds, and a server that does not
# answer would hold up the command for ever.
END_SECONDS = 60.0


@dataclass(frozen=True)
class _Opened:
    """The jobs of a source, as last opened."""

    source: SourceJobs
    writers: tuple[StreamWriter, ...]
    snapshotter: Snapshotter | None


class Jobs:
    """Streams and snapshots of the sources in `settings`; either kind may be left out.

    writers: the numbers of the stream writers to run here (None: all); writers to be removed run with writer 1.
    on_stored: called by a writer's thread with each landing whose position is stored.
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
        self._location = lake.location  # asked for now: later the lake may not answer
        self._settings = settings
        self._kinds = (stream, snapshot)
        self._numbers = writers
        self._on_stored = on_stored
        self._on_over = on_over
        self._opened: dict[str, _Opened] = {}
        # By source: the revisions of its tables, and a position past their registration.
        self._registered: dict[str, tuple[dict[str, int], int]] = {}
        self._supervisors = [self._supervisor(source) for source in settings.sources.values()]
        self._repeats = Repeats(_log)
        self._changed = threading.Condition()
        self._over = threading.Event()
        self._stopping = threading.Event()
        self._timed_out = False

    @property
    def is_over(self) -> bool:
        """Whether the jobs were told to end, the timeout has expired, or all sources have failed."""
        return self._over.is_set()

    @property
    def writers(self) -> list[StreamWriter]:
        """The stream writers that run here."""
        return [writer for opened in list(self._opened.values()) for writer in opened.writers]

    @property
    def snapshotters(self) -> list[Snapshotter]:
        """The snapshotters that run here."""
        return [opened.snapshotter for opened in list(self._opened.values()) if opened.snapshotter]

    @contextmanager
    def running(self, timeout: float | None = None) -> Iterator["Jobs"]:
        """Starts the jobs; on exit stops them, waits for them, and raises what a source has failed with.

        Entered when the jobs of one source run, or those of all sources have been tried. timeout: seconds after which
        the jobs are told to end; then a job that does not end, as its server does not answer, is left behind.
        """
        timer = threading.Timer(timeout, self._time_out) if timeout is not None else None
        try:
            if timer:
                timer.daemon = True
                timer.start()
            for supervisor in self._supervisors:
                supervisor.start()
            with self._changed:
                self._changed.wait_for(self._is_begun)
            yield self
        finally:
            if timer:
                timer.cancel()
            self.end()
            self._join(None if timeout is None else END_SECONDS)
        self.raise_failed()

    def _join(self, seconds: float | None) -> None:
        """Wait until the jobs have ended, for so many seconds at most (None: without a limit)."""
        deadline = None if seconds is None else time.monotonic() + seconds
        for supervisor in self._supervisors:
            if not supervisor.join(None if deadline is None else max(0.0, deadline - time.monotonic())):
                said = "its jobs wait for the server and do not end; what they have not committed is read again"
                _log.warning("source %s: %s", supervisor.name, said)

    def end(self) -> None:
        """Make `wait` return, and the jobs end after the commits in progress."""
        self._stopping.set()
        for supervisor in self._supervisors:
            supervisor.stop()
        self._set_over()

    def wait(self, until_caught_up: bool = False) -> None:
        """Until `end`, or until all sources have failed; until_caught_up: or until all that was committed before the
        call is landed.

        Raises what all sources have failed with, and Failure if the timeout expires first.
        """
        targets = self.watermarks() if until_caught_up else {}
        while not self._over.wait(LOOK_SECONDS if until_caught_up else None):
            if self.has_landed(targets):
                return
        self.check()
        if until_caught_up:
            self.say_what_is_left(targets)

    def raise_failed(self) -> None:
        """Raise what a source has failed with, if one has."""
        for supervisor in self._supervisors:
            if supervisor.is_failed and supervisor.error is not None:
                raise supervisor.error

    def check(self) -> None:
        """Raise what a source has failed with, if all sources have failed."""
        if self._are_all_failed():
            self.raise_failed()

    def say_what_is_left(self, targets: Mapping[str, int]) -> None:
        """After an end before all was landed: log what is missing and what it waits for. Raises Failure with that if
        the timeout has expired.
        """
        left = [line for supervisor in self._supervisors for line in self._left(supervisor, targets)]
        if self._timed_out:
            fix = "What is landed stays; run the command again, or raise --timeout"
            raise Failure("not caught up before the timeout", "; ".join(left) or "the last run of the models", fix)
        for line in left:
            _log.warning("not caught up: %s", line)

    def watermarks(self) -> dict[str, int]:
        """By source: a position past all that is committed by now. Sources that can't be reached are missing."""
        found: dict[str, int] = {}
        self._ask_watermarks(found)
        return found

    def _ask_watermarks(self, targets: dict[str, int]) -> None:
        for name, opened in list(self._opened.items()):
            if name not in targets:
                try:
                    targets[name] = opened.source.watermark()
                except Exception as error:
                    if not isinstance(error, TidemarkError) and source_kinds.unavailable(error, name) is None:
                        raise
                    _log.debug("source %s can't be asked for its position: %s", name, error)

    def has_landed(self, targets: dict[str, int]) -> bool:
        """Whether the jobs that run here have landed all that is before `targets`; failed sources are ignored.

        Adds the targets of sources that could not be reached before. False if the lake does not answer.
        """
        try:
            return self._have_landed(targets)
        except Exception as error:
            if found := source_kinds.unavailable(error, self._location):
                self._repeats.occurred(f"{found} Retrying.", key=found.what)
                return False
            raise

    def _have_landed(self, targets: dict[str, int]) -> bool:
        self._ask_watermarks(targets)
        return all(
            supervisor.is_failed
            or (supervisor.name in targets and self._source_has_landed(supervisor.name, targets[supervisor.name]))
            for supervisor in self._supervisors
        )

    def _source_has_landed(self, source: str, target: int) -> bool:
        landed = self.landed(source)  # first: what it has brought may have queued a table
        tables = list(self._lake.tables.read(source).values())
        if self._to_read(source, tables):
            return False
        return landed is None or landed > max(target, self._past_registration(source, tables))

    def _to_read(self, source: str, tables: Iterable[SourceTable]) -> list[SourceTable]:
        """The tables that are still to be read by a snapshotter here."""
        snapshotter = self._opened[source].snapshotter if source in self._opened else None
        if snapshotter is None:
            return []
        return [table for table in tables if table.is_pending and table.table_id not in snapshotter.unreadable]

    def _left(self, supervisor: Supervisor, targets: Mapping[str, int]) -> list[str]:
        """What a source has not landed and what it waits for, as text."""
        source, target = supervisor.name, targets.get(supervisor.name)
        if supervisor.error is not None:
            return [f"source {source}: {_text(supervisor.error)}"]
        if target is None:
            holders = source_kinds.holders(self._settings.sources[source], self._settings.settings)
            return [f"source {source}: its jobs have not started{_behind(holders)}"]
        lines = []
        queued = self._to_read(source, self._lake.tables.read(source).values())
        if queued:
            holders = source_kinds.holders(self._settings.sources[source], self._settings.settings)
            names = ", ".join(sorted(table.table_name for table in queued))
            lines.append(f"source {source}: snapshots not complete: {names}{_behind(holders)}")
        landed = self.landed(source)
        if landed is not None and landed <= target:
            at, to = (
                source_kinds.position_text(self._settings.sources[source], position) for position in (landed, target)
            )
            lines.append(f"source {source}: landed up to {at} of {to}")
        return lines

    def _past_registration(self, source: str, tables: Iterable[SourceTable]) -> int:
        """A position past the ends of snapshots, and past the moment at which they were registered: a run of the models
        in progress then has not seen them, and the next run considers them only at another position.
        """
        revisions = {table.table_id: table.rev for table in tables}
        known, position = self._registered.get(source, ({}, 0))
        if revisions != known:
            position = self._opened[source].source.watermark()
            self._registered[source] = revisions, position
        return position

    def landed(self, source: str) -> int | None:
        """The position that all writers of a source that run here have stored; None if none runs here."""
        return min((w.progress.position.position for w in self._of(source)), default=None)

    def _of(self, source: str) -> list[StreamWriter]:
        return [w for w in self._opened[source].writers if not w.has_left] if source in self._opened else []

    def _supervisor(self, source: Source) -> Supervisor:
        def explain(error: BaseException) -> Unavailable | None:
            return source_kinds.unavailable(error, self._location)

        return Supervisor(source.name, lambda: self._open(source), explain, self._on_change)

    def _open(self, described: Source) -> list[Job]:
        """Make the jobs of a source from the stored state."""
        self._lake.describe(described.name, described.snapshot_hold)
        running = self._numbers if self._kinds[0] else ()
        source = source_kinds.jobs(
            self._lake, described, self._settings.settings, running=running, wait=self._stopping.wait
        )
        try:
            opened, jobs = self._make(source)
        except BaseException:
            source.rest()
            raise
        self._opened[source.name] = opened
        return jobs

    def _make(self, source: SourceJobs) -> tuple[_Opened, list[Job]]:
        stream, snapshot = self._kinds
        jobs: list[Job] = []
        snapshotter = source.snapshotter() if snapshot else None
        writers = []
        for one in source.streams if stream else ():
            number = 1 if one.departure else one.position.writer
            if self._numbers is None or number in self._numbers:
                writer = source.writer(one, CommitHooks(after_store=self._stored), snapshotter)
                writers.append(writer)
                jobs.append(Job(f"stream {source.name} {one.position.writer}", writer.run, writer.stop))
        if snapshotter:
            jobs.append(Job(f"snapshot {source.name}", snapshotter.run, snapshotter.stop))
        else:
            source.rest()
        return _Opened(source, tuple(writers), snapshotter), jobs

    def _stored(self, batch: Batch) -> None:
        """In a writer's thread. What it landed is visible when the other writers, idle ones too, have reached it."""
        if batch.rows:
            for writer in self._of(batch.position.source):
                writer.request_position()
        self._on_stored(batch)

    def _on_change(self, supervisor: Supervisor) -> None:
        """In a supervisor's thread: its source has failed, or has recovered."""
        said = None if supervisor.error is None else _text(supervisor.error)
        try:
            self._lake.report(supervisor.name, said)
        except Exception as failure:  # noqa: BLE001  # the lake may be what fails
            _log.debug("the state of source %s can't be stored", supervisor.name, exc_info=failure)
        with self._changed:
            self._changed.notify_all()
        if self._are_all_failed():
            self._set_over()

    def _are_all_failed(self) -> bool:
        """Whether no source runs or can recover without manual action."""
        return all(supervisor.is_failed for supervisor in self._supervisors)

    def _is_begun(self) -> bool:
        """Whether there is something to wait for, or to raise."""
        supervisors = self._supervisors
        return self.is_over or any(s.has_opened for s in supervisors) or all(s.was_tried for s in supervisors)

    def _time_out(self) -> None:
        self._timed_out = True
        self.end()

    def _set_over(self) -> None:
        if not self._over.is_set():
            self._over.set()
            with self._changed:
                self._changed.notify_all()
            self._on_over()


def _text(error: BaseException) -> str:
    return str(error) if isinstance(error, TidemarkError) else unforeseen(error)


def _behind(holders: Iterable[str]) -> str:
    held = ", ".join(holders)
    return f", waiting for open transactions: {held}" if held else ""
