"""The snapshotter: copies the tables that are queued in `raw.source_tables` to `raw.snapshot_rows`, chunk by chunk.

Any number of snapshotters work on one source, in threads, processes or machines. They share the two tables below and
nothing else. Every state is set by a conditional update (rule T5): of several processes that try, one wins.

State of raw.source_tables, a row for each generation of a table:

queued   It needs a snapshot. Set by the catalog sync (a new or altered table), the feed (events that a snapshot may
         lack), `Lake.discard_timeline` (a failover), a new slot or stream, `tidemark resnapshot`, `_requeue_tables`
         (altered while it was read), `_has_all_rows` (read at several positions while the stream is paused).
running  It is read under `snapshot_id`, at `snapshot_lsn`. Set by `_begin_snapshots`.
done     It is complete for a reader of the log up to `complete_lsn`. Set by `_complete_snapshots`, unless the row was
         changed meanwhile (rule S4).
ended    The generation is gone for a reader of the log up to `ended_lsn`. Set by the catalog sync, and when the
         selection of a MongoDB source changes.

State of raw.snapshot_chunks, a row for each chunk of a snapshot:

queued   It may be claimed. Set by `_begin_snapshots` (all chunks but the first group), `_has_all_rows` (rows to read
         again by key), the end of a `Lease` (claimed, but not read).
running  `owner` reads it; it may be claimed again after `lease_until`. Set by `_begin_snapshots` (the first group) and
         `_claim_chunks`; a `Lease` renews it.
done     Its rows are committed; `row_count` and `read_lsn` are set. Set by `Lease.finish`, unless another process has
         claimed it meanwhile.

A snapshot is obsolete when its id is not the table's `snapshot_id`: `_begin_snapshots` deletes the chunks of one that
lost against another process, retention those of the others. After a kill the done chunks stay, and the leases of the
others run out (rule S8).

Chunks are read in groups: many small tables are begun, read, committed and completed together. A snapshot delays
neither the snapshots of other tables nor the stream, unless `stream_waits`.
"""

import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import chain

from ingest.common.log_repeats import Repeats
from ingest.config.job_settings import JobSettings
from ingest.lake import Chunk, Lake, SourceTable
from ingest.lake.incomplete_rows import find_incomplete_rows
from ingest.lake.lease_renewal import Lease
from ingest.lake.raw_schema import SNAPSHOT_ROWS
from ingest.lake.snapshot_chunks import ChunkStats, make_claimed
from ingest.lake.source_tables import QUEUED, RUNNING
from ingest.snapshot.chunk_planning import begin_snapshot, key_chunks
from ingest.snapshot.running_snapshots import RunningSnapshots, complete_table, is_read_at_snapshot_lsn, select_chunks
from ingest.snapshot.snapshot_source import CatalogUnavailable, ChunkOutcome, SnapshotSource, SourceUnavailable

_log = logging.getLogger(__name__)

# The maximum number of rows with a missing value that are searched for at a time; the next follow when these are read.
KEYS_AT_ONCE = 100_000
# Seconds between two tries to read tables that could not be read: a permission may have been granted.
RETRY_SECONDS = 60.0

# Claimed chunks with their tables, to be read together and committed in one batch.
Group = list[tuple[SourceTable, Chunk]]


def _do_nothing(chunks: Sequence[Chunk]) -> None:
    pass


@dataclass
class SnapshotHooks:
    """Called with the chunks of a group, in the order of the fields.

    An exception from a hook ends the snapshotter as if the process had been killed there.
    """

    after_plan: Callable[[Sequence[Chunk]], None] = _do_nothing
    after_claim: Callable[[Sequence[Chunk]], None] = _do_nothing
    before_commit: Callable[[Sequence[Chunk]], None] = _do_nothing
    after_commit: Callable[[Sequence[Chunk]], None] = _do_nothing
    before_done: Callable[[Sequence[Chunk]], None] = _do_nothing


class Snapshotter:
    """Takes the queued snapshots of a source. `run` it once, in any thread; `stop` and `wake` it from any other.

    rows: the number of rows that it has committed. unreadable: by table_id, why a table can't be read at present.
    """

    def __init__(
        self,
        lake: Lake,
        source: SnapshotSource,
        name: str,
        settings: JobSettings,
        hooks: SnapshotHooks | None = None,
        *,
        stream_waits: bool = False,
    ) -> None:
        """name: of the source, as in raw.source_tables. stream_waits: the stream is paused during snapshots."""
        self.rows = 0
        self.unreadable: dict[str, str] = {}
        self._lake = lake
        self._source = source
        self._name = name
        self._settings = settings
        self._hooks = hooks or SnapshotHooks()
        self._id = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        self._stream_waits = stream_waits
        self._claim_count = 0
        # By snapshot_id and number of chunks: the position that the stream has to pass before rows are compared.
        self._awaited_positions: dict[tuple[str, int], int] = {}
        self._retry_at = time.monotonic() + RETRY_SECONDS
        self._queue_polled_at = 0.0
        self._repeats, self._problems = Repeats(_log), Repeats(_log)
        self._stop = threading.Event()
        self._wake = threading.Event()

    def stop(self) -> None:
        """Ends the run after the chunks that are being read."""
        self._stop.set()
        self._wake.set()
        self._source.cancel()

    def wake(self) -> None:
        """Makes the run look for queued tables now."""
        self._wake.set()

    def run(self, until_done: bool = False) -> None:
        """Takes queued snapshots until `stop`; until_done: or until every snapshot that can be taken is taken."""
        is_first = True
        try:
            while not self._stop.is_set():
                self._wake.clear()
                pending_count = self._poll(is_first)
                is_first = False
                if until_done and pending_count == 0:
                    return
                seconds = self._settings.catalog_poll_seconds
                self._wake.wait(min(seconds, 1.0) if pending_count else seconds)
        finally:
            self._source.close()

    def _poll(self, is_first: bool) -> int:
        """Syncs the catalog, then takes snapshots; returns the number of tables that are still pending."""
        try:
            self._source.sync_catalog()
            is_first = False
            pending_count = self._take_snapshots()
        except SourceUnavailable as error:
            if is_first and not isinstance(error, CatalogUnavailable):
                raise
            self._repeats.occurred(f"source {self._name}: the snapshotter waits: {error}", key=error.what)
            return 1
        self._repeats.over(f"source {self._name}: the snapshotter continues")
        return pending_count

    def _take_snapshots(self) -> int:
        """Reads group after group until no chunk is free; returns the number of tables that are still pending."""
        self._queue_polled_at = time.monotonic()
        if not any(table.is_pending for table in self._lake.tables.read(self._name).values()):
            self.unreadable.clear()
            self._source.release_resources()
            return 0
        group = self._begin_snapshots(self._read_queued_tables())
        while not self._stop.is_set() and (group := group or self._claim_next_group()):
            if not self._read_group(group):
                break  # the source can't be reached: no retry at once
            group = self._begin_more_snapshots()
        pending_tables = self._read_pending_tables()
        if not pending_tables:
            self._source.release_resources()
        return len(pending_tables)

    def _claim_next_group(self) -> Group:
        """Completes the snapshots whose chunks are all read, then claims chunks of the others."""
        snapshots = self._read_running_snapshots()
        self._complete_snapshots(snapshots)
        return self._claim_chunks(snapshots)

    def _begin_more_snapshots(self) -> Group:
        """Begins the snapshots of tables that were queued while others are read, every `catalog_poll_seconds`."""
        if time.monotonic() - self._queue_polled_at < self._settings.catalog_poll_seconds:
            return []
        self._queue_polled_at = time.monotonic()
        self._source.sync_catalog()
        return self._begin_snapshots(self._read_queued_tables(), patient=False)

    def _read_queued_tables(self) -> list[SourceTable]:
        """The queued tables without those that can't be read; these are tried again every `RETRY_SECONDS`."""
        if time.monotonic() >= self._retry_at:
            self._retry_at = time.monotonic() + RETRY_SECONDS
            self.unreadable.clear()
        pending_tables = self._read_pending_tables()
        self.unreadable |= {
            table.table_id: reason for table in pending_tables if (reason := self._source.ineligibility_reason(table))
        }
        return [table for table in pending_tables if table.state == QUEUED and table.table_id not in self.unreadable]

    def _read_pending_tables(self) -> list[SourceTable]:
        tables = self._lake.tables.read(self._name).values()
        pending_tables = [table for table in tables if table.is_pending and table.table_id not in self.unreadable]
        return sorted(pending_tables, key=lambda table: table.table_name)

    def _begin_snapshots(self, queued_tables: Sequence[SourceTable], *, patient: bool = True) -> Group:
        """Plans snapshots of queued tables and sets these to running; returns their first chunks as a claimed group."""
        plans = self._source.plan(queued_tables, patient=patient) if queued_tables else []
        if not plans:
            return []
        tables = {table.table_id: table for table in queued_tables}
        new_snapshots = [begin_snapshot(tables[plan.table.table_id], plan) for plan in plans]
        rows = [row for row, _ in new_snapshots]
        snapshots = RunningSnapshots.from_rows(rows, chain.from_iterable(chunks for _, chunks in new_snapshots))
        claimed_chunks = make_claimed(
            self._select_chunks(snapshots), self._make_owner(), self._settings.chunk_lease_seconds
        )
        chunks = chain(*snapshots.chunks.values(), claimed_chunks)
        planned_chunks = list({(chunk.snapshot_id, chunk.chunk): chunk for chunk in chunks}.values())
        # The chunks first: no process may see a running snapshot without its chunks.
        if planned_chunks:
            self._lake.chunks.insert(planned_chunks)
        self._hooks.after_plan(planned_chunks)
        self._lake.tables.upsert(self._name, rows)
        # Compared by snapshot_id, not by row: a process that moves a table to another writer may have changed the row.
        won_ids = snapshots.tables.keys() & {table.snapshot_id for table in self._lake.tables.read(self._name).values()}
        self._lake.chunks.delete_snapshots(snapshots.tables.keys() - won_ids)
        for snapshot_id, row in snapshots.tables.items():
            if snapshot_id in won_ids:
                _log.info("snapshot of %s: %d chunks", row.table_name, len(snapshots.chunks[snapshot_id]))
        return self._make_group(snapshots, [chunk for chunk in claimed_chunks if chunk.snapshot_id in won_ids])

    def _read_running_snapshots(self) -> RunningSnapshots:
        tables = [table for table in self._read_pending_tables() if table.state == RUNNING]
        return RunningSnapshots.from_rows(tables, self._lake.chunks.read(str(table.snapshot_id) for table in tables))

    def _claim_chunks(self, snapshots: RunningSnapshots) -> Group:
        selected_chunks = self._select_chunks(snapshots)
        if not selected_chunks:
            return []
        seconds = self._settings.chunk_lease_seconds
        return self._make_group(snapshots, self._lake.chunks.claim(selected_chunks, self._make_owner(), seconds))

    def _make_group(self, snapshots: RunningSnapshots, claimed_chunks: Sequence[Chunk]) -> Group:
        if claimed_chunks:
            self._hooks.after_claim(claimed_chunks)
        return snapshots.pair(claimed_chunks)

    def _select_chunks(self, snapshots: RunningSnapshots) -> list[Chunk]:
        return select_chunks(
            snapshots,
            datetime.now(timezone.utc),
            self._settings.snapshot_batch_bytes,
            self._source.estimated_bytes,
            lambda table: self._stream_waits or self._source.requires_single_snapshot(table),
        )

    def _make_owner(self) -> str:
        """A name for one claim, different from that of every other claim."""
        self._claim_count += 1
        return f"{self._id}:{self._claim_count}"

    def _read_group(self, group: Group) -> bool:
        """Reads claimed chunks, commits their rows in one batch and marks the chunks done. False if every chunk has to
        be retried, as when the source can't be reached.
        """
        started_at = time.monotonic()
        folder = self._lake.commit_folder(SNAPSHOT_ROWS)
        with Lease(self._lake.chunks, [chunk for _, chunk in group], self._settings.chunk_lease_seconds) as lease:
            outcomes = list(self._source.read(group, folder))
            tables = {chunk.snapshot_id: table for table, chunk in group}
            self._report_problems(outcomes, tables)
            self._requeue_tables(outcomes, tables)
            successes = [outcome for outcome in outcomes if not outcome.problem]
            self._hooks.before_commit([outcome.chunk for outcome in successes])
            self._lake.add(SNAPSHOT_ROWS, [outcome.file for outcome in successes if outcome.file is not None])
            self._hooks.after_commit([outcome.chunk for outcome in successes])
            done_chunks = lease.mark_done(
                {
                    (outcome.chunk.snapshot_id, outcome.chunk.chunk): ChunkStats(outcome.rows, outcome.read_lsn)
                    for outcome in successes
                }
            )
        rows = sum(chunk.row_count or 0 for chunk in done_chunks)
        self.rows += rows
        self._lake.run_housekeeping()
        if done_chunks:
            if len(successes) == len(outcomes):
                self._problems.over(f"source {self._name}: chunks can be read again")
            table_names = sorted({tables[chunk.snapshot_id].table_name for chunk in done_chunks})
            subject = f"{len(table_names)} tables" if len(table_names) > 1 else table_names[0]
            _log.info("%d rows of %s in %.1f s", rows, subject, time.monotonic() - started_at)
        return not outcomes or any(outcome.is_settled for outcome in outcomes)

    def _report_problems(self, outcomes: Iterable[ChunkOutcome], tables: Mapping[str, SourceTable]) -> None:
        """Logs each problem, once for each table, and remembers the tables that can't be read."""
        restarted_ids: set[str] = set()
        for outcome in outcomes:
            table = tables[outcome.chunk.snapshot_id]
            if outcome.must_restart and table.table_id not in restarted_ids:
                _log.warning("restarting the snapshot of %s: %s", table.table_name, outcome.problem)
                restarted_ids.add(table.table_id)
            elif outcome.is_unreadable and table.table_id not in self.unreadable:
                _log.error("%s can't be read: %s", table.table_name, outcome.problem)
                self.unreadable[table.table_id] = outcome.problem
            elif outcome.problem and table.table_id not in self.unreadable:
                message = f"{table.table_name} can't be read at present, retrying: {outcome.problem}"
                self._problems.occurred(message, key=table.table_id)

    def _requeue_tables(self, outcomes: Iterable[ChunkOutcome], tables: Mapping[str, SourceTable]) -> None:
        """Queues new snapshots of the tables that were altered since their snapshot was begun."""
        problem_by_snapshot: dict[str, str] = {}
        for outcome in outcomes:
            if outcome.must_restart:
                problem_by_snapshot.setdefault(outcome.chunk.snapshot_id, outcome.problem)
        queued_tables = [
            tables[snapshot_id].with_snapshot_queued(problem) for snapshot_id, problem in problem_by_snapshot.items()
        ]
        self._lake.tables.upsert(self._name, queued_tables)

    def _complete_snapshots(self, snapshots: RunningSnapshots) -> None:
        """Sets tables whose rows are all read to done, unless they were queued or altered in the meantime."""
        complete_tables = [
            (table, chunks) for table, chunks in snapshots.fully_read() if self._has_all_rows(table, chunks)
        ]
        if not complete_tables:
            return
        complete_lsn = self._source.emit_marker()
        self._hooks.before_done([chunk for _, chunks in complete_tables for chunk in chunks])
        # DDL that the log does not contain is looked for once more. It queues a table that was altered, and the
        # conditional update below does not change a row that was queued.
        self._source.sync_catalog()
        for row in self._lake.tables.upsert(
            self._name, [complete_table(*complete_pair, complete_lsn) for complete_pair in complete_tables]
        ):
            _log.info("snapshot of %s is complete: %d rows", row.table_name, row.row_count)
        # A run of the models that was already past `complete_lsn` admits the snapshot at the next position, which this
        # call creates.
        self._source.emit_marker()

    def _has_all_rows(self, table: SourceTable, chunks: Sequence[Chunk]) -> bool:
        """Whether the lake has every row with every value, now that all chunks are done.

        Chunks that were read at different LSNs miss the rows that moved between them. The stream brings these, but not
        their unchanged TOAST values; rows with a missing value are planned as chunks by key (rule S8). Where each
        update has all values, the stream brings everything.
        """
        if is_read_at_snapshot_lsn(table, chunks) or not self._source.has_partial_updates:
            return True
        if self._stream_waits:  # the stream brings nothing
            self._lake.tables.upsert(self._name, [table.with_snapshot_queued("it was read at different positions")])
            return False
        key = (str(table.snapshot_id), len(chunks))
        if key not in self._awaited_positions:
            self._awaited_positions[key] = self._source.emit_marker()
            _log.info("snapshot of %s was read at different positions: waiting for the stream", table.table_name)
        persisted_position = self._lake.persisted_position(self._name)
        if persisted_position is None or persisted_position <= self._awaited_positions[key]:
            return False
        rows = find_incomplete_rows(self._lake.spark, table, self._awaited_positions[key], KEYS_AT_ONCE)
        if rows:
            _log.info("%d rows of %s are read again by key", len(rows), table.table_name)
            self._lake.chunks.insert(key_chunks(table, len(chunks), self._awaited_positions[key], rows))
        return not rows
