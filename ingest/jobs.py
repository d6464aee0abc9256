"""The ingest jobs of all sources as threads of one process: stream writers and snapshotters.

What the jobs share is the lake. The first that fails ends the wait; `check` raises what ended it.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ingest import kinds
from ingest.config import Settings
from ingest.lake import Lake
from ingest.positions import persisted
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
        on_stored: Callable[[Landing], None] = lambda _: None,
        on_failed: Callable[[], None] = lambda: None,
    ) -> None:
        self.writers: list[StreamWriter] = []
        self.snapshotters: dict[str, Snapshotter] = {}
        self._lake = lake
        self._settings = settings
        self._kinds = (stream, snapshot)
        self._on_stored = on_stored
        self._on_failed = on_failed
        self._sources: list[SourceJobs] = []
        self._workers: list[_Worker] = []
        self._failure: BaseException | None = None
        self._over = threading.Event()

    @contextmanager
    def running(self) -> Iterator["Jobs"]:
        """Started; at the end stopped and waited for. Raises what ended a job."""
        try:
            for source in self._settings.sources.values():
                self._lake.describe(source.name, source.checkpoint_scope)
                self._open(kinds.jobs(self._lake, source, self._settings.settings))
            for worker in self._workers:
                worker.thread.start()
            yield self
        finally:
            self._stop_all()
        self.check()

    def end(self) -> None:
        """Let `wait` return."""
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
        return {source.name: source.watermark() for source in self._sources}

    def has_landed(self, targets: dict[str, int]) -> bool:
        """Whether all before `targets` is landed by the kinds of job that run here."""
        return all(self._source_has_landed(source, target) for source, target in targets.items())

    def _source_has_landed(self, source: str, target: int) -> bool:
        tables = list(self._lake.tables.read(source).values())
        if source in self.snapshotters:
            given_up = self.snapshotters[source].given_up
            left = [table.table_id for table in tables if table.is_pending]
            if any(table_id not in given_up for table_id in left):
                return False
        if not self.writers:
            return True
        ends = [table.done_lsn for table in tables if table.done_lsn is not None]
        stored = persisted(self._lake.positions(source), source)
        return stored is not None and stored > max([target, *ends])

    def _open(self, source: SourceJobs) -> None:
        stream, snapshot = self._kinds
        snapshotter = source.snapshotter() if snapshot else None
        self._sources.append(source)
        if stream:
            writer = source.writer(Hooks(after_store=self._on_stored), snapshotter)
            self.writers.append(writer)
            self._add(f"stream {source.name}", writer.run, writer.stop)
        if snapshotter:
            self.snapshotters[source.name] = snapshotter
            self._add(f"snapshot {source.name}", snapshotter.run, snapshotter.stop)
        else:
            source.rest()

    def _add(self, name: str, run: Callable[[], object], stop: Callable[[], None]) -> None:
        def work() -> None:
            try:
                run()
            except BaseException as error:  # noqa: BLE001  # whatever it is, the main thread raises it
                self._failure = self._failure or error
                self._over.set()
                self._on_failed()

        self._workers.append(_Worker(threading.Thread(target=work, name=name, daemon=True), stop))

    def _stop_all(self) -> None:
        for worker in self._workers:
            worker.stop()
        for worker in self._workers:
            if worker.thread.ident is not None:
                worker.thread.join()
