"""The stream writer: batches of a source's stream into `raw.wal_events`, position by position.

Four stages overlap: the feed reads the socket, `run`'s thread decodes, a sink's writes Parquet, a
committer's lands files, stores the position in a write of its own, then acknowledges it. The
position stored is that of the last finished transaction of what is landed; rows of an open
transaction may be landed before it, unseen until then. Memory is bounded by the settings, never by
a transaction.
"""

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import reduce
from queue import Empty, Full, Queue
from typing import Protocol

import pyarrow as pa

from ingest.common.errors import Failure
from ingest.common.records import EVENTS as SCHEMA
from ingest.common.records import EventBatch
from ingest.config.job_settings import JobSettings
from ingest.lake import DataFile, Lake
from ingest.lake.parquet_files import BackgroundSink
from ingest.lake.raw_schema import EVENTS
from ingest.positions.position import Position, StreamReset

_log = logging.getLogger(__name__)

# A row group: what is held in memory before it is compressed into the file.
ROW_GROUP_BYTES = 16 << 20


class Feed(Protocol):
    """What a source gives a writer; see `postgres.feed.PostgresFeed`."""

    def start(self) -> None:
        """Begin to read from the stored position."""

    def read(self, timeout: float) -> EventBatch | StreamReset | None:
        """What came next, None if nothing did."""

    def acknowledge(self, position: Position) -> None:
        """`position` is stored."""

    def before_landing(self) -> bool:
        """What was read so far is about to be landed, and its position stored; false: it is not to be."""

    def cancel(self) -> None:
        """What waits in `read` for the source gives up. Called by any thread."""

    def finish(self) -> None:
        """Read no more from the source; what was read may still be taken."""

    def stop(self) -> None:
        """Tell the source what is stored, and end."""


class Departure(Protocol):
    """What a writer that is to leave has to do; see `postgres.departure.Departure`."""

    def target(self) -> int | None:
        """The position that it has to pass, None if that is not known yet. Asked often."""

    def leave(self) -> None:
        """It has passed the target."""


def _nothing(landing: "Landing") -> None:
    pass


@dataclass
class Hooks:
    """Called around each landing and each storing of a position, by the thread that does it.

    What one raises ends the writer as if it had been killed there.
    """

    before_land: Callable[["Landing"], None] = _nothing
    after_land: Callable[["Landing"], None] = _nothing
    before_store: Callable[["Landing"], None] = _nothing
    after_store: Callable[["Landing"], None] = _nothing


@dataclass(frozen=True)
class Landing:
    """Files to be landed together, and the position they bring the writer to. is_open: some of their rows are not below
    it yet.
    """

    position: Position
    files: tuple[DataFile, ...] = ()
    is_open: bool = False

    @property
    def rows(self) -> int:
        """How many events it holds."""
        return sum(file.rows for file in self.files)


@dataclass
class Progress:
    """What a writer has done so far; position: the stored one."""

    position: Position
    events: int = 0
    landings: int = 0
    transactions: int = 0
    last_landed_at: float | None = field(default=None)


class StreamWriter:
    """One writer of a source. `run` it in any thread, once; `stop` it from any other."""

    def __init__(
        self,
        lake: Lake,
        feed: Feed,
        position: Position,
        settings: JobSettings,
        hooks: Hooks | None = None,
        departure: Departure | None = None,
    ) -> None:
        self.progress = Progress(position)
        self.has_left = False
        self._departure = departure
        self._lake = lake
        self._feed = feed
        self._settings = settings
        self._hooks = hooks or Hooks()
        self._stop = threading.Event()
        self._landings: Queue[Landing | None] = Queue(maxsize=2)
        self._failure: BaseException | None = None
        self._sink: BackgroundSink | None = None
        self._held: list[pa.Table] = []
        self._held_bytes = 0
        self._landing_bytes = 0
        self._is_open = False
        self._since = 0.0
        self._position = position
        self._queued = position
        self._announced = time.monotonic()

    def stop(self) -> None:
        """End after what has been read so far is landed."""
        self._stop.set()
        self._feed.cancel()

    def announce(self) -> None:
        """Store the position at the next occasion, as others wait for it."""
        self._announced = 0.0

    def run(self, until: int | None = None) -> Progress:
        """Stream until `stop`, or until the stored position has passed `until`, or it has left.

        Raises what ended it.
        """
        committer = threading.Thread(target=self._commit_all, name="committer", daemon=True)
        committer.start()
        self._feed.start()
        try:
            while not self._done(target := self._target(until)):
                self._step(target)
            self._feed.finish()
            self._drain(until)
            self._hand_over(None)
            committer.join()
        except BaseException:
            self._give_up(committer)
            raise
        finally:
            self._feed.stop()
        if self._failure is not None:
            raise self._failure
        if self._departure is not None and self._has_passed(self._departure.target()):
            self._departure.leave()
            self.has_left = True
        return self.progress

    def _target(self, until: int | None) -> int | None:
        return until if self._departure is None else self._departure.target()

    def _has_passed(self, target: int | None) -> bool:
        return target is not None and self.progress.position.position > target

    def _done(self, until: int | None) -> bool:
        return self._stop.is_set() or self._has_passed(until) or self._failure is not None

    def _step(self, until: int | None) -> None:
        """Take what the feed has; land what is due."""
        batch = self._feed.read(0.05)
        if isinstance(batch, EventBatch):
            self._add(batch)
        elif batch is not None:
            self._restart(batch)
        self._land_if_due(batch, until)

    def _drain(self, until: int | None) -> None:
        """After the feed's end: what it has still got, if that was asked for by `stop`."""
        while self._failure is None:
            batch = self._feed.read(0.3) if until is None else None
            if not isinstance(batch, EventBatch):
                break
            self._add(batch)
            self._land_if_due(batch, until)
        self._land()

    def _add(self, batch: EventBatch) -> None:
        if batch.position is not None:
            self._position = self._position.advanced_to(batch.position, batch.token)
        self.progress.transactions += batch.transactions
        self._is_open = batch.in_transaction
        if batch.events.num_rows:
            self._since = self._since or time.monotonic()
            self._held.append(batch.events)
            size = batch.events.nbytes
            self._held_bytes += size
            self._landing_bytes += size
            if self._held_bytes >= ROW_GROUP_BYTES:
                self._write()

    def _write(self) -> None:
        """What is held becomes a row group of the open file."""
        if self._held:
            if self._sink is None:
                self._sink = BackgroundSink(self._lake.file_folder(EVENTS), SCHEMA)
            self._sink.write(pa.concat_tables(self._held))
            self._held, self._held_bytes = [], 0

    def _restart(self, restart: StreamReset) -> None:
        """The stream begins again at the stored position: what is not landed will come once more."""
        self._forget()
        if restart.timeline != self._queued.timeline:
            self._discard(restart.position)
        self._position = self._queued = replace(self._queued.advanced_to(restart.position), timeline=restart.timeline)

    def _forget(self) -> None:
        """What is not handed over is not landed: it comes again."""
        if self._sink is not None:
            self._sink.discard()
        self._sink, self._held, self._held_bytes, self._landing_bytes = None, [], 0, 0
        self._since, self._is_open, self._position = 0.0, False, self._queued

    def _discard(self, position: int) -> None:
        """What waits for the committer, or was landed beyond what is stored, is of a timeline that another has left at
        `position` or later.
        """
        with suppress(Empty):
            while True:
                self._landings.get_nowait()
                self._landings.task_done()
        while not self._idle() and self._failure is None:
            time.sleep(0.05)
        self._queued = self.progress.position
        if self._queued.position > position:
            raise Failure(
                "the cluster failed over while a landing was committed",
                f"source {self._queued.source}",
                "Start the stream again, so that the new timeline is compared with what is stored now",
            )
        self._lake.discard_timeline(replace(self._queued, position=position))

    def _land_if_due(self, batch: EventBatch | StreamReset | None, until: int | None) -> None:
        now = time.monotonic()
        if self._landing_bytes >= self._settings.commit_max_bytes:
            self._land()
        elif self._landing_bytes:
            # While the committer is busy a landing would only wait: let it grow instead.
            old = now - self._since >= self._settings.commit_interval_seconds
            if (old or self._reaches(until)) and self._idle():
                self._land()
        elif self._position.position > self._queued.position and self._idle():
            asked = isinstance(batch, EventBatch) and batch.reply_requested
            if asked or self._reaches(until) or now - self._announced >= self._settings.idle_position_seconds:
                self._land()

    def _reaches(self, until: int | None) -> bool:
        return until is not None and self._position.position > until >= self._queued.position

    def _idle(self) -> bool:
        return not self._landings.unfinished_tasks

    def _land(self) -> None:
        """Hand what there is to the committer."""
        if not self._landing_bytes and self._position == self._queued:
            return
        if not self._feed.before_landing():
            self._forget()
            return
        self._write()
        files = (self._sink.close(),) if self._sink is not None else ()
        self._sink, self._landing_bytes, self._since = None, 0, 0.0
        if self._hand_over(Landing(self._position, files, bool(files) and self._is_open)):
            self._queued, self._announced = self._position, time.monotonic()

    def _hand_over(self, landing: Landing | None) -> bool:
        """Queue it for the committer, waiting while that is busy; false if it has failed."""
        while self._failure is None:
            with suppress(Full):
                self._landings.put(landing, timeout=0.2)
                return True
        return False

    def _commit_all(self) -> None:
        """The committer's thread."""
        try:
            more = True
            while more and (first := self._landings.get()) is not None:
                waiting, more = self._waiting()
                landings = [first, *waiting]
                self._commit(reduce(_joined, landings))
                for _ in landings:
                    self._landings.task_done()
        except BaseException as error:  # noqa: BLE001  # whatever it is, `run` raises it
            self._failure = error

    def _waiting(self) -> tuple[list[Landing], bool]:
        """All that is queued now; whether more may come."""
        waiting: list[Landing] = []
        try:
            while (landing := self._landings.get_nowait()) is not None:
                waiting.append(landing)
        except Empty:
            return waiting, True
        return waiting, False

    def _commit(self, landing: Landing) -> None:
        if landing.files:
            self._hooks.before_land(landing)
            self._lake.add(EVENTS, landing.files)
            self._hooks.after_land(landing)
            self.progress.events += landing.rows
            self.progress.landings += 1
            self.progress.last_landed_at = time.time()
        if landing.position.position > self.progress.position.position:
            self._hooks.before_store(landing)
            self._lake.store_position(landing.position)
            self.progress.position = landing.position
            self._feed.acknowledge(landing.position)
            self._hooks.after_store(landing)
        self._lake.run_housekeeping(landing.position)

    def _give_up(self, committer: threading.Thread) -> None:
        """On an error in this thread: what was queued is landed, all or none of it, and then no more."""
        if self._sink is not None:
            self._sink.discard()
        while committer.is_alive():
            with suppress(Full):
                self._landings.put(None, timeout=0.2)
                break
        committer.join(timeout=60)


def _joined(landing: Landing, following: Landing) -> Landing:
    is_open = following.is_open or (landing.is_open and landing.position == following.position)
    return Landing(following.position, landing.files + following.files, is_open)
