"""The ingest jobs of all sources as threads of one process: stream writers and snapshotters.

What the jobs share is the lake. The first that fails ends the wait; `check` raises what ended it.
"""

import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ingest import kinds
from ingest.config import Settings
from ingest.lake import Lake
from ingest.lake.tables import SourceTable
from ingest.snapshot import Snapshotter
from ingest.sourcejobs import SourceJobs
from ingest.stream import Hooks, Landing, StreamWriter

# How often a process that is to end when it has caught up looks whether it has.
LOOK_SECONDS = 0.5


@dataclass(frozen=True)
class _Worker:
    thread: threading.Thread
    stop: Callable[[], None]


class Jobs:
    """Streams and snapshots of the sources in `settings`; either may be left out.

    writers: the numbers of the stream writers to run here (None: all); those that are to leave go with the first.
    on_stored: called by a writer's thread with each landing whose position is stored.
    on_failed: called when a job fails.
    """

    def __init__(
        self,
        lake: Lake,
        settings: Settings,
        *,
        stream: bool = True,
        snapshot: bool = True,
        writers: Collection[int] | None = None,
        on_stored: Callable[[Landing], None] = lambda _: None,
        on_failed: Callable[[], None] = lambda: None,
    ) -> None:
        self.writers: list[StreamWriter] = []
        self.snapshotters: dict[str, Snapshotter] = {}
        self._lake = lake
        self._settings = settings
        self._kinds = (stream, snapshot)
        self._numbers = writers
        self._on_stored = on_stored
        self._on_failed = on_failed
        self._sources: dict[str, SourceJobs] = {}
        # By source the revisions of its tables, and a position past their registration.
        self._registered: dict[str, tuple[dict[str, int], int]] = {}
        self._workers: list[_Worker] = []
        self._failure: BaseException | None = None
        self._over = threading.Event()

    @contextmanager
    def running(self) -> Iterator["Jobs"]:
        """Started; at the end stopped and waited for. Raises what ended a job."""
        try:
            for source in self._settings.sources.values():
                self._lake.describe(source.name, source.checkpoint_scope)
                running = self._numbers if self._kinds[0] else ()
                self._open(kinds.jobs(self._lake, source, self._settings.settings, running=running))
            for worker in self._workers:
                worker.thread.start()
            yield self
        finally:
            self._end_all()
        self.check()

    def end(self) -> None:
        """Let `wait` return, and the jobs end after what they have at hand."""
        for worker in self._workers:
            worker.stop()
        self._over.set()

    def wait(self, until_caught_up: bool = False) -> None:
        """Until `end` or a failure; until_caught_up: or until what was committed before is landed."""
        targets = self.watermarks() if until_caught_up else {}
        while not self._over.wait(LOOK_SECONDS if until_caught_up else None):
            if self.has_landed(targets):
                return
        self.check()

    def check(self) -> None:
        """Raise what ended a job, if one has failed."""
        if self._failure is not None:
            raise self._failure

    def watermarks(self) -> dict[str, int]:
        """By source a position past all that is committed in it by now."""
        return {name: source.watermark() for name, source in self._sources.items()}

    def has_landed(self, targets: dict[str, int]) -> bool:
        """Whether all before `targets` is landed by the kinds of job that run here."""
        return all(self._source_has_landed(source, target) for source, target in targets.items())

    def _source_has_landed(self, source: str, target: int) -> bool:
        landed = self.landed(source)  # first: what it has brought may have queued a table
        tables = list(self._lake.tables.read(source).values())
        if source in self.snapshotters:
            given_up = self.snapshotters[source].given_up
            left = [table.table_id for table in tables if table.is_pending]
            if any(table_id not in given_up for table_id in left):
                return False
        return landed is None or landed > max(target, self._past_registration(source, tables))

    def _past_registration(self, source: str, tables: Iterable[SourceTable]) -> int:
        """A position past the ends of snapshots, and past the moment at which they were registered: a run of the models
        that was under way then has not seen them, and the next decides of them only at another position.
        """
        revisions = {table.table_id: table.rev for table in tables}
        known, position = self._registered.get(source, ({}, 0))
        if revisions != known:
            position = self._sources[source].watermark()
            self._registered[source] = revisions, position
        return position

    def landed(self, source: str) -> int | None:
        """The position that all of a source's writers that run here have stored; None if none does."""
        return min((w.progress.position.position for w in self._of(source)), default=None)

    def _of(self, source: str) -> list[StreamWriter]:
        return [w for w in self.writers if w.progress.position.source == source and not w.has_left]

    def _open(self, source: SourceJobs) -> None:
        stream, snapshot = self._kinds
        snapshotter = source.snapshotter() if snapshot else None
        self._sources[source.name] = source
        for one in source.streams if stream else ():
            number = 1 if one.departure else one.position.writer
            if self._numbers is None or number in self._numbers:
                writer = source.writer(one, Hooks(after_store=self._stored), snapshotter)
                self.writers.append(writer)
                self._add(f"stream {source.name} {one.position.writer}", writer.run, writer.stop)
        if snapshotter:
            self.snapshotters[source.name] = snapshotter
            self._add(f"snapshot {source.name}", snapshotter.run, snapshotter.stop)
        else:
            source.rest()

    def _stored(self, landing: Landing) -> None:
        """By a writer's thread. What it landed can be seen when the others, idle ones too, are as far."""
        if landing.rows:
            for writer in self._of(landing.position.source):
                writer.announce()
        self._on_stored(landing)

    def _add(self, name: str, run: Callable[[], object], stop: Callable[[], None]) -> None:
        def work() -> None:
            try:
                run()
            except BaseException as error:  # noqa: BLE001  # whatever it is, the main thread raises it
                self._failure = self._failure or error
                self._over.set()
                self._on_failed()

        self._workers.append(_Worker(threading.Thread(target=work, name=name, daemon=True), stop))

    def _end_all(self) -> None:
        self.end()
        for worker in self._workers:
            if worker.thread.ident is not None:
                worker.thread.join()
