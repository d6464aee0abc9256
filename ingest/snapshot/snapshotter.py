"""The snapshotter: tables that `raw.source_tables` has queued, read chunk by chunk into
`raw.snapshot_rows`.

Any number of snapshotters work on one source, in threads, processes or machines; the tables are all
they share. A snapshot is begun by whoever's conditional change wins, chunks are claimed with
leases, and what a killed one left is gone on with. Many small tables cost as little as one: they
are begun, read, landed and marked done together. It never holds up the stream, nor one table
another.
"""

import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from itertools import chain

from ingest.common.log_repeats import Repeats
from ingest.config.job_settings import JobSettings
from ingest.lake import Chunk, Lake, SourceTable
from ingest.lake.chunk_leases import Lease
from ingest.lake.chunk_table import Count, claimed_by
from ingest.lake.incomplete_rows import lacking
from ingest.lake.raw_schema import SNAPSHOT_ROWS
from ingest.lake.source_tables import DONE, QUEUED, RUNNING
from ingest.snapshot.chunk_planning import chunks_of, key_chunks
from ingest.snapshot.snapshot_source import Busy, Read, Source, Unreachable

_log = logging.getLogger(__name__)

# Chunks of small tables that are read as one group; a statement about them stays of a readable
# size.
GROUP_CHUNKS = 200
# Rows that lack a value and are asked for at a time; the rest follow when those are read.
KEYS_AT_ONCE = 100_000
# What could not be read is tried again now and then: a permission may have been given.
AGAIN_SECONDS = 60.0


def _nothing(chunks: Sequence[Chunk]) -> None:
    pass


@dataclass
class SnapshotHooks:
    """Called around each group of chunks.

    What one raises ends the snapshotter as if it had been killed there.
    """

    after_plan: Callable[[Sequence[Chunk]], None] = _nothing
    after_claim: Callable[[Sequence[Chunk]], None] = _nothing
    before_land: Callable[[Sequence[Chunk]], None] = _nothing
    after_land: Callable[[Sequence[Chunk]], None] = _nothing
    before_done: Callable[[Sequence[Chunk]], None] = _nothing


@dataclass
class _Work:
    """The snapshots that are being read: tables by snapshot_id, and their chunks."""

    tables: Mapping[str, SourceTable]
    chunks: Mapping[str, list[Chunk]] = field(default_factory=dict)


class Snapshotter:
    """Takes a source's queued snapshots.

    `run` it in any thread, once; `stop` and `wake` it from any other.
    """

    def __init__(
        self,
        lake: Lake,
        source: Source,
        name: str,
        settings: JobSettings,
        hooks: SnapshotHooks | None = None,
        *,
        alone: bool = False,
    ) -> None:
        """name: of the source, as in raw.source_tables. alone: the stream waits while snapshots are taken."""
        self.rows = 0
        self.given_up: dict[str, str] = {}
        self._lake = lake
        self._source = source
        self._name = name
        self._settings = settings
        self._hooks = hooks or SnapshotHooks()
        self._me = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        self._alone = alone
        self._claims = 0
        self._awaited: dict[tuple[str, int], int] = {}
        self._next_chance = time.monotonic() + AGAIN_SECONDS
        self._begun_at = 0.0
        self._repeats, self._problems = Repeats(_log), Repeats(_log)
        self._stop = threading.Event()
        self._wake = threading.Event()

    def stop(self) -> None:
        """End after the chunks at hand."""
        self._stop.set()
        self._wake.set()
        self._source.cancel()

    def wake(self) -> None:
        """Look at the queue now."""
        self._wake.set()

    def run(self, until_done: bool = False) -> None:
        """Take what is queued, and what comes; until_done: end when all is done that can be."""
        first = True
        try:
            while not self._stop.is_set():
                self._wake.clear()
                left = self._look(first)
                first = False
                if until_done and left == 0:
                    return
                seconds = self._settings.catalog_poll_seconds
                self._wake.wait(min(seconds, 1.0) if left else seconds)
        finally:
            self._source.close()

    def _look(self, first: bool) -> int:
        """Survey, then do what there is to do; how many tables are not done."""
        try:
            self._source.survey()
            first = False
            left = self._pass()
        except Unreachable as error:
            if first and not isinstance(error, Busy):
                raise
            self._repeats.occurred(f"source {self._name}: the snapshotter waits: {error}", key=error.what)
            return 1
        self._repeats.over(f"source {self._name}: the snapshotter continues")
        return left

    def _pass(self) -> int:
        """Do all there is to do now; how many tables are not done, though they may be yet."""
        self._begun_at = time.monotonic()
        group = self._begin(self._queued())
        while not self._stop.is_set() and (group := group or self._next()):
            if not self._read(group):
                break  # what can't be reached is not tried again at once
            group = self._begin_more()
        left = self._pending()
        if not left:
            self._source.rest()
        return len(left)

    def _next(self) -> list[tuple[SourceTable, Chunk]]:
        """A group of chunks of what is begun, ours now; what is read is done."""
        work = self._work()
        self._finish(work)
        return self._claim(work)

    def _begin_more(self) -> list[tuple[SourceTable, Chunk]]:
        """What was queued while others are read is not to wait for their end; looked for now and then."""
        if time.monotonic() - self._begun_at < self._settings.catalog_poll_seconds:
            return []
        self._begun_at = time.monotonic()
        self._source.survey()
        return self._begin(self._queued(), patient=False)

    def _queued(self) -> list[SourceTable]:
        """What is to be begun. What can't be read is given up, but for a try now and then."""
        if time.monotonic() >= self._next_chance:
            self._next_chance = time.monotonic() + AGAIN_SECONDS
            self.given_up.clear()
        pending = self._pending()
        self.given_up |= {t.table_id: why for t in pending if (why := self._source.obstacle(t))}
        return [t for t in pending if t.state == QUEUED and t.table_id not in self.given_up]

    def _pending(self) -> list[SourceTable]:
        tables = self._lake.tables.read(self._name).values()
        left = [t for t in tables if t.is_pending]
        return sorted((t for t in left if t.table_id not in self.given_up), key=lambda t: t.table_name)

    def _begin(self, queued: Sequence[SourceTable], *, patient: bool = True) -> list[tuple[SourceTable, Chunk]]:
        """Plan snapshots under new ids, then claim the tables for them; gives the chunks that were planned as ours."""
        plans = self._source.plan(queued, patient=patient) if queued else []
        if not plans:
            return []
        before = {table.table_id: table for table in queued}
        chunks: dict[str, list[Chunk]] = {}
        rows: list[SourceTable] = []
        for plan in plans:
            table = before[plan.table.table_id]
            snapshot_id = f"{table.table_id}-{uuid.uuid4().hex[:12]}"
            chunks[snapshot_id] = chunks_of(table, snapshot_id, plan.chunks)
            rows.append(
                table.after(
                    state=RUNNING,
                    snapshot_id=snapshot_id,
                    snapshot_lsn=plan.snapshot_lsn,
                    columns=plan.table.columns,
                    leaves=plan.table.partitions,
                    attributes=plan.table.attributes,
                    published_id=plan.table.published_id,
                    dropped=None,
                )
            )
        work = _Work({str(row.snapshot_id): row for row in rows}, chunks)
        ours = claimed_by(self._wanted(work), self._owner(), self._settings.chunk_lease_seconds)
        planned = list({(c.snapshot_id, c.chunk): c for c in chain(*chunks.values(), ours)}.values())
        # The chunks are there before the tables say so: nobody sees a snapshot without its chunks.
        if planned:
            self._lake.chunks.plan(planned)
        self._hooks.after_plan(planned)
        self._lake.tables.put(self._name, rows)
        # Not by what is as we put it: whoever moves a table to another writer may have changed its row since.
        won = work.tables.keys() & {table.snapshot_id for table in self._lake.tables.read(self._name).values()}
        self._lake.chunks.drop(work.tables.keys() - won)
        for snapshot_id, row in work.tables.items():
            if snapshot_id in won:
                _log.info("snapshot of %s: %d chunks", row.table_name, len(chunks[snapshot_id]))
        return self._to_read(work, [chunk for chunk in ours if chunk.snapshot_id in won])

    def _work(self) -> _Work:
        """What is running, as of now."""
        tables = {str(t.snapshot_id): t for t in self._pending() if t.state == RUNNING}
        chunks: dict[str, list[Chunk]] = {snapshot_id: [] for snapshot_id in tables}
        for chunk in self._lake.chunks.read(tables):
            chunks[chunk.snapshot_id].append(chunk)
        return _Work(tables, chunks)

    def _claim(self, work: _Work) -> list[tuple[SourceTable, Chunk]]:
        """A group of chunks that are ours now."""
        wanted = self._wanted(work)
        if not wanted:
            return []
        return self._to_read(work, self._lake.chunks.claim(wanted, self._owner(), self._settings.chunk_lease_seconds))

    def _to_read(self, work: _Work, claimed: Sequence[Chunk]) -> list[tuple[SourceTable, Chunk]]:
        if claimed:
            self._hooks.after_claim(claimed)
        return [(work.tables[chunk.snapshot_id], chunk) for chunk in claimed]

    def _owner(self) -> str:
        """Another one for each claim."""
        self._claims += 1
        return f"{self._me}:{self._claims}"

    def _wanted(self, work: _Work) -> list[Chunk]:
        """A group of chunks that are free, to be landed by one commit."""
        now = datetime.now(timezone.utc)
        most = self._settings.snapshot_batch_bytes
        wanted: list[Chunk] = []
        weight = 0
        for snapshot_id, table in work.tables.items():
            free = [chunk for chunk in work.chunks[snapshot_id] if chunk.claimable(now)]
            whole = self._alone or self._source.at_once(table)
            if whole and any(c.state == RUNNING and c not in free for c in work.chunks[snapshot_id]):
                continue
            for chunk in free:
                size = self._source.weight(table, chunk)
                if not whole and wanted and (weight + size > most or len(wanted) >= GROUP_CHUNKS):
                    break
                wanted.append(chunk)
                weight += size
        return wanted

    def _read(self, group: Sequence[tuple[SourceTable, Chunk]]) -> bool:
        """Read claimed chunks, land them in one commit, name them done. Whether any came to something: was read, or is
        not to be tried again as it is.
        """
        began = time.monotonic()
        folder = self._lake.landing_folder(SNAPSHOT_ROWS)
        with Lease(self._lake.chunks, [c for _, c in group], self._settings.chunk_lease_seconds) as lease:
            found = list(self._source.read(group, folder))
            tables = {chunk.snapshot_id: table for table, chunk in group}
            self._tell(found, tables)
            good = [read for read in found if not read.problem]
            files = [read.file for read in good if read.file is not None]
            self._hooks.before_land([read.chunk for read in good])
            self._lake.add(SNAPSHOT_ROWS, files)
            self._hooks.after_land([read.chunk for read in good])
            counted = lease.finish({(r.chunk.snapshot_id, r.chunk.chunk): Count(r.rows, r.read_lsn) for r in good})
        rows = sum(chunk.row_count or 0 for chunk in counted)
        self.rows += rows
        self._lake.upkeep()
        if counted:
            if len(good) == len(found):
                self._problems.over(f"source {self._name}: chunks are read again")
            names = sorted({tables[chunk.snapshot_id].table_name for chunk in counted})
            many = f"{len(names)} tables" if len(names) > 1 else names[0]
            took = time.monotonic() - began
            _log.info("%d rows of %s in %.1f s", rows, many, took)
        return not found or any(not read.problem or read.restart or read.give_up for read in found)

    def _tell(self, found: Iterable[Read], tables: Mapping[str, SourceTable]) -> None:
        """Say what went wrong, queue anew what has to be, leave alone what can't be read."""
        restart: dict[str, SourceTable] = {}
        for read in found:
            table = tables[read.chunk.snapshot_id]
            if read.restart and table.table_id not in restart:
                _log.warning("the snapshot of %s begins anew: %s", table.table_name, read.problem)
                restart[table.table_id] = table.queued(read.problem)
            elif read.give_up and table.table_id not in self.given_up:
                _log.error("%s can't be read: %s", table.table_name, read.problem)
                self.given_up[table.table_id] = read.problem
            elif read.problem and table.table_id not in self.given_up:
                problem = f"{table.table_name}, to be tried again: {read.problem}"
                self._problems.occurred(problem, key=table.table_id)
        self._lake.tables.put(self._name, list(restart.values()))

    def _finish(self, work: _Work) -> None:
        """Mark tables done whose chunks all are, unless they were queued anew or altered meanwhile."""
        read = [s for s in work.tables if all(chunk.state == DONE for chunk in work.chunks[s])]
        complete = [s for s in read if self._is_complete(work.tables[s], work.chunks[s])]
        if not complete:
            return
        complete_lsn = self._source.watermark()
        self._hooks.before_done([chunk for s in complete for chunk in work.chunks[s]])
        # What the log doesn't tell is looked for once more; a table that was altered is queued by
        # this.
        self._source.survey()
        rows = [
            work.tables[snapshot_id].after(
                state=DONE,
                complete_lsn=complete_lsn,
                row_count=sum(chunk.row_count or 0 for chunk in work.chunks[snapshot_id]),
                note=None,
            )
            for snapshot_id in complete
        ]
        for row in self._lake.tables.put(self._name, rows):
            _log.info("snapshot of %s is done: %d rows", row.table_name, row.row_count)
        # A run of the models that was past `complete_lsn` before admits the snapshot at the next position: make one.
        self._source.watermark()

    def _is_complete(self, table: SourceTable, chunks: Sequence[Chunk]) -> bool:
        """Whether no row lacks a value, now that all chunks are read; those that do are to be read by their keys.

        Chunks of different moments miss what moved between them, and the stream has to tell what.
        """
        if all(chunk.read_lsn in (None, table.snapshot_lsn) for chunk in chunks):
            return True
        if self._alone:  # nothing tells what moved between them
            self._lake.tables.put(self._name, [table.queued("it was read at different moments")])
            return False
        read = (str(table.snapshot_id), len(chunks))
        if read not in self._awaited:
            self._awaited[read] = self._source.watermark()
            _log.info("snapshot of %s was read at different moments: it waits for the stream", table.table_name)
        stored = self._lake.persisted(self._name)
        if stored is None or stored <= self._awaited[read]:
            return False
        found = lacking(self._lake.spark, table, self._awaited[read], KEYS_AT_ONCE)
        if found:
            _log.info("%d rows of %s are read once more", len(found), table.table_name)
            self._lake.chunks.plan(key_chunks(table, len(chunks), self._awaited[read], found))
        return not found
