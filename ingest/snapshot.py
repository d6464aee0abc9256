"""The snapshotter: tables that `raw.source_tables` has queued, read chunk by chunk into `raw.snapshot_rows`.

Any number of snapshotters work on one source, in threads, processes or machines; the tables are all they
share. A table is begun by whoever's conditional update wins, chunks are claimed with leases, and what a
killed one left is gone on with. It never holds up the stream, nor one table another.
"""

import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Protocol

from ingest.lake import Chunk, Lake, SourceTable
from ingest.lake.ddl import SNAPSHOT_ROWS
from ingest.lake.files import File, Folder
from ingest.lake.tables import DONE, QUEUED, RUNNING, pending
from ingest.settings import JobSettings

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Begun:
    """A snapshot to be: the table as it is read, the stamp, and its chunks (bounds by leaf)."""

    table: SourceTable
    snapshot_lsn: int
    chunks: tuple[tuple[int, int, int | None], ...]


@dataclass(frozen=True)
class Read:
    """How the reading of claimed chunks went: files and rows of those that were read, by chunk.

    restart: why the table has to be begun anew. give_up: why it can't be read, by this snapshotter at least.
    """

    files: Mapping[int, File] = field(default_factory=dict)
    rows: Mapping[int, int] = field(default_factory=dict)
    restart: str = ""
    give_up: str = ""


class Source(Protocol):
    """What a source gives a snapshotter; see `postgres.snapshots.PostgresTables`."""

    def survey(self) -> None:
        """Brings raw.source_tables up to date with the source's catalogue."""

    def begin(self, table: SourceTable) -> Begun | None:
        """How a queued table is to be read; None: not now, and it has been said or recorded why."""

    def read(self, table: SourceTable, chunks: Sequence[Chunk], folder: Folder) -> Read:
        """Reads claimed chunks into files of `folder`."""

    def watermark(self) -> int:
        """A position past everything that was committed before the call."""

    def unchanged(self, table: SourceTable) -> bool:
        """Whether the source's table is still the one that was read."""

    def close(self) -> None: ...


def _nothing(table: SourceTable, chunks: Sequence[Chunk]) -> None:
    pass


@dataclass
class SnapshotHooks:
    """Called around each group of chunks; what one raises ends the snapshotter as if it had been killed there."""

    after_begin: Callable[[SourceTable, Sequence[Chunk]], None] = _nothing
    before_read: Callable[[SourceTable, Sequence[Chunk]], None] = _nothing
    before_land: Callable[[SourceTable, Sequence[Chunk]], None] = _nothing
    after_land: Callable[[SourceTable, Sequence[Chunk]], None] = _nothing
    before_done: Callable[[SourceTable, Sequence[Chunk]], None] = _nothing


class Snapshotter:
    """Takes a source's queued snapshots. `run` it in any thread, once; `stop` and `wake` it from any other."""

    def __init__(
        self,
        lake: Lake,
        source: Source,
        name: str,
        settings: JobSettings,
        hooks: SnapshotHooks | None = None,
    ) -> None:
        """name: of the source, as in raw.source_tables."""
        self.rows = 0
        self._lake = lake
        self._source = source
        self._name = name
        self._settings = settings
        self._hooks = hooks or SnapshotHooks()
        self._me = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        self._claims = 0
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._given_up: set[str] = set()

    def stop(self) -> None:
        """End after the chunks at hand."""
        self._stop.set()
        self._wake.set()

    def wake(self) -> None:
        """Look at the queue now."""
        self._wake.set()

    def run(self, until_done: bool = False) -> None:
        """Take what is queued, and what comes; until_done: end when nothing is left to take."""
        try:
            while not self._stop.is_set():
                self._wake.clear()
                self._source.survey()
                left = self._pass()
                if until_done and not left:
                    return
                if not self._stop.is_set():
                    self._wake.wait(0.5 if left and until_done else self._settings.catalogue_seconds)
        finally:
            self._source.close()

    def _pass(self) -> bool:
        """Work on each table that is queued or running; whether some of them still are."""
        left = False
        for table in pending(list(self._lake.tables.read(self._name).values())):
            if self._stop.is_set():
                return True
            if table.table_id in self._given_up:
                continue
            left |= not self._take(table)
        return left

    def _take(self, table: SourceTable) -> bool:
        """Do what there is to do for a table now; whether nothing more is."""
        if table.state == QUEUED:
            begun = self._begin(table)
            if begun is None:
                return table.table_id in self._given_up
            table = begun
        while not self._stop.is_set():
            chunks = self._lake.chunks.read(table.snapshot_id or "")
            if chunks and all(chunk.state == DONE for chunk in chunks):
                return self._finish(table, chunks)
            claimed = self._claim(chunks)
            if not claimed:
                return False  # others are at it
            if not self._group(table, claimed):
                return table.table_id in self._given_up
        return False

    def _begin(self, table: SourceTable) -> SourceTable | None:
        """Plan a snapshot under a new id, then claim the table for it."""
        plan = self._source.begin(table)
        if plan is None:
            return None
        snapshot_id = f"{table.table_id}-{uuid.uuid4().hex[:12]}"
        # The chunks are there before the table says so: nobody ever sees a snapshot without its chunks.
        self._lake.chunks.plan(
            [
                Chunk(
                    table.source,
                    table.table_id,
                    snapshot_id,
                    number,
                    leaf_id,
                    str(lower),
                    None if upper is None else str(upper),
                )
                for number, (leaf_id, lower, upper) in enumerate(plan.chunks)
            ]
        )
        begun = self._lake.tables.change(
            table,
            state=RUNNING,
            snapshot_id=snapshot_id,
            snapshot_lsn=plan.snapshot_lsn,
            done_lsn=None,
            row_count=None,
            columns=plan.table.columns,
            leaves=plan.table.leaves,
        )
        if begun is None:
            self._lake.chunks.drop(snapshot_id)
            return None
        _log.info("snapshot of %s: %d chunks", table.table_name, len(plan.chunks))
        self._hooks.after_begin(begun, ())
        return begun

    def _claim(self, chunks: Sequence[Chunk]) -> list[Chunk]:
        """A group of chunks that are ours now."""
        now = datetime.now(timezone.utc)
        free = [chunk for chunk in chunks if chunk.claimable(now)]
        group = free[: self._settings.snapshot_workers]
        if not group:
            return []
        self._claims += 1
        owner = f"{self._me}:{self._claims}"
        return self._lake.chunks.claim(group, owner, self._settings.lease_seconds)

    def _group(self, table: SourceTable, chunks: Sequence[Chunk]) -> bool:
        """Read claimed chunks and land them in one commit; whether the snapshot can go on."""
        self._hooks.before_read(table, chunks)
        began = time.monotonic()
        folder = self._lake.landing_folder(SNAPSHOT_ROWS)
        read = self._source.read(table, chunks, folder)
        landed = [chunk for chunk in chunks if chunk.chunk in read.rows]
        if landed and not read.restart:
            self._hooks.before_land(table, landed)
            files = [read.files[c.chunk] for c in landed if c.chunk in read.files]
            self._lake.add(SNAPSHOT_ROWS, files)
            self._hooks.after_land(table, landed)
            counted = self._lake.chunks.finish(landed, read.rows)
            rows = sum(read.rows[chunk.chunk] for chunk in counted)
            self.rows += rows
            self._lake.upkeep()
            _log.info(
                "snapshot of %s: %d rows in %.1f s", table.table_name, rows, time.monotonic() - began
            )
        if read.restart:
            _log.warning("the snapshot of %s begins anew: %s", table.table_name, read.restart)
            self._lake.tables.change(table, state=QUEUED, snapshot_id=None, snapshot_lsn=None)
            return False
        if read.give_up:
            _log.error("%s can't be read: %s", table.table_name, read.give_up)
            self._given_up.add(table.table_id)
        missing = [chunk for chunk in chunks if chunk.chunk not in read.rows]
        if missing:
            self._lake.chunks.release(missing)
        return not missing

    def _finish(self, table: SourceTable, chunks: Sequence[Chunk]) -> bool:
        """Mark the table done, unless it was queued or altered meanwhile."""
        done_lsn = self._source.watermark()
        self._hooks.before_done(table, chunks)
        if not self._source.unchanged(table):
            self._lake.tables.change(table, state=QUEUED, snapshot_id=None, snapshot_lsn=None)
            return False
        rows = sum(chunk.row_count or 0 for chunk in chunks)
        done = self._lake.tables.change(table, state=DONE, done_lsn=done_lsn, row_count=rows)
        if done is not None:
            _log.info("snapshot of %s is done: %d rows", table.table_name, rows)
        return done is not None
