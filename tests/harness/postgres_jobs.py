"""The rows of a table by the lake, folded from snapshot and events, and by the source.

The two must be equal.
"""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ingest.config.job_settings import JobSettings
from ingest.config.sources_file import PostgresSource
from ingest.lake import Lake, SourceTable
from ingest.lake.source_tables import DONE, ENDED
from ingest.positions.position import Position, current_epochs, readable_ranges
from ingest.snapshot.snapshotter import SnapshotHooks, Snapshotter
from ingest.sources.postgres.catalog import catalog_tables
from ingest.sources.postgres.postgres_connection import connect, copy_out
from ingest.sources.postgres.replication.replication_feed import PostgresFeed
from ingest.sources.postgres.slots.replication_slots import ExportedSnapshot
from ingest.sources.postgres.snapshot.postgres_snapshot_source import PostgresTables
from ingest.sources.postgres.writers.postgres_writers import open_writers
from ingest.sources.postgres.writers.writer_reset import start_over
from ingest.stream.batch_committer import CommitHooks, Progress
from ingest.stream.stream_writer import StreamWriter

Row = tuple[str | None, ...]


@dataclass
class PostgresJobs:
    """A source's stream writer and snapshot worker, created for each run as in a new process."""

    lake: Lake
    source: PostgresSource
    settings: JobSettings
    exported_snapshot: ExportedSnapshot | None = field(default=None, repr=False)

    # Columns that may differ in a replay.
    VARYING: ClassVar[tuple[str, ...]] = ("ingested_at",)

    def emit_marker(self) -> int:
        with connect(self.source.dsn.get_secret_value()) as connection:
            return catalog_tables.emit_marker(connection)

    def open(self) -> None:
        """Creates slot and publication, so that later changes are streamed."""
        self.positions()

    def positions(self) -> dict[int, Position]:
        """The position at which each writer resumes."""
        positions, snapshot = open_writers(self.lake, self.source, self.settings)
        self.exported_snapshot = snapshot or self.exported_snapshot
        return positions

    def close(self) -> None:
        """Releases the current exported snapshot, if it is unused."""
        if self.exported_snapshot is not None:
            self.exported_snapshot.close()
            self.exported_snapshot = None

    def resnapshot(self) -> None:
        """Does the same as `tidemark resnapshot --all`."""
        self.close()
        start_over(self.lake, self.source, self.settings)

    def queue(self, *table_names: str) -> None:
        """Does the same as `tidemark resnapshot TABLE`."""
        assert self.lake.tables.queue_snapshots(self.source.name, "asked for", table_names) == list(table_names)

    def count_events(self) -> int:
        """The number of events in the lake, visible or not."""
        query = f"SELECT count(*) FROM raw.wal_events WHERE source = '{self.source.name}'"
        return int(self.lake.spark.sql(query).collect()[0][0])

    def writer(self, hooks: CommitHooks | None = None, writer: int = 1) -> StreamWriter:
        position = self.positions()[writer]
        feed = PostgresFeed(self.lake, self.source, self.settings, position)
        return StreamWriter(self.lake, feed, position, self.settings, hooks)

    def stream(self, hooks: CommitHooks | None = None) -> Progress:
        """Streams all changes committed so far."""
        writer = self.writer(hooks)
        return writer.run(until=self.emit_marker())

    def snapshotter(self, hooks: SnapshotHooks | None = None) -> Snapshotter:
        self.positions()
        snapshot, self.exported_snapshot = self.exported_snapshot, None
        tables = PostgresTables(self.lake, self.source, self.settings, snapshot)
        return Snapshotter(self.lake, tables, self.source.name, self.settings, hooks)

    def snapshot(self, hooks: SnapshotHooks | None = None) -> Snapshotter:
        """Takes all queued snapshots."""
        snapshotter = self.snapshotter(hooks)
        snapshotter.run(until_done=True)
        return snapshotter

    def settle(self) -> None:
        """Streams and takes snapshots until the lake has all changes committed so far."""
        self.stream()
        with self.streaming():
            self.snapshot()
        self.stream()

    @contextmanager
    def streaming(self, hooks: CommitHooks | None = None) -> Iterator[StreamWriter]:
        """Runs the stream in a thread; raises its error at the end of the context."""
        writer = self.writer(hooks)
        failures: list[BaseException] = []

        def work() -> None:
            try:
                writer.run()
            except BaseException as error:  # noqa: BLE001  # raised by the test's own thread
                failures.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield writer
        finally:
            writer.stop()
            thread.join(60)
            assert not thread.is_alive(), "the stream does not stop"
        for failure in failures:
            raise failure

    def table(self, table_name: str) -> SourceTable:
        """The active generation of a table."""
        tables = self.lake.tables.read(self.source.name).values()
        (table,) = [t for t in tables if t.table_name == table_name and t.state != ENDED]
        return table

    def events(self, table_id: str | None = None) -> list[dict[str, Any]]:
        """The visible events of the stream, each once, in order."""
        stored = self.lake.positions.read(self.source.name)
        intervals = {w: readable_ranges(stored, self.source.name, w) for _, w in current_epochs(stored)}
        events_by_key: dict[tuple[int, int, int], dict[str, Any]] = {}
        query = f"SELECT * FROM raw.wal_events WHERE source = '{self.source.name}'"
        for row in self.lake.spark.sql(query).collect():
            event = row.asDict()
            commit_lsn = event["commit_lsn"]
            if not any(low <= commit_lsn < high for low, high in intervals.get(event["writer"], [])):
                continue
            key = (event["writer"], commit_lsn, event["commit_index"])
            first = events_by_key.setdefault(key, event)
            same = event.keys() - set(self.VARYING)
            assert all(first[name] == event[name] for name in same), "a replay gave an event another key"
        events = sorted(events_by_key.values(), key=lambda e: (e["commit_lsn"], e["change_lsn"], e["commit_index"]))
        return [e for e in events if table_id is None or e["table_id"] == table_id]

    def lake_rows(self, table_name: str) -> Counter[Row]:
        """The table's rows by snapshot and stream, values in column order."""
        table = self.table(table_name)
        assert table.state == DONE, f"{table_name} is {table.state}: {table.note}"
        position = self.persisted_position()
        assert position is not None
        assert table.complete_lsn is not None
        assert position > table.complete_lsn
        return fold(table, self.snapshot_rows(table), self.events(table.table_id))

    def persisted_position(self) -> int | None:
        """The position up to which the lake has all changes."""
        return self.lake.persisted_position(self.source.name)

    def snapshot_rows(self, table: SourceTable) -> list[dict[str, Any]]:
        """The rows of a table's snapshot from attempts that are marked done."""
        return self.rows_of_snapshots(f"r.snapshot_id = '{table.snapshot_id}'")

    def rows_of_snapshots(self, condition: str) -> list[dict[str, Any]]:
        """The rows, from attempts that are marked done, of the snapshots that match a condition."""
        query = f"""
            SELECT r.*, c.row_keys IS NOT NULL AS again FROM raw.snapshot_rows r JOIN raw.snapshot_chunks c
            ON r.snapshot_id = c.snapshot_id AND r.chunk = c.chunk AND r.attempt = c.attempt
            AND c.state = 'done'
            WHERE {condition}"""
        return [row.asDict() for row in self.lake.spark.sql(query).collect()]

    def source_rows(self, table_name: str) -> Counter[Row]:
        """The table's rows by SQL on the source."""
        names = ", ".join('"' + c.name.replace('"', '""') + '"' for c in self.table(table_name).columns)
        schema, _, name = table_name.partition(".")
        quoted = f'"{schema}"."{name}"'.replace('"' + name + '"', '"' + name.replace('"', '""') + '"')
        with connect(self.source.dsn.get_secret_value()) as connection:
            text = b"".join(copy_out(connection, f"COPY (SELECT {names} FROM {quoted}) TO STDOUT"))
        lines = text.decode().split("\n")[:-1]
        return Counter(tuple(map(_value, line.split("\t"))) for line in lines)

    def assert_equal(self, *table_names: str) -> None:
        """Lake and source have the same rows."""
        for table_name in table_names:
            lake, source = self.lake_rows(table_name), self.source_rows(table_name)
            assert lake == source, f"{table_name}: only lake {lake - source}, only source {source - lake}"


def fold(table: SourceTable, snapshot: list[dict[str, Any]], events: list[dict[str, Any]]) -> Counter[Row]:
    """The rows that result from a table's snapshot and events, values in column order."""
    is_counted = table.key_columns is None
    rows: dict[str, tuple[dict[str, Any], int, int]] = {}
    reread: dict[str, tuple[int, dict[str, Any]]] = {}
    duplicates: set[str] = set()
    for row in snapshot:
        if row["again"]:
            if row["read_lsn"] > reread.get(row["row_key"], (0, {}))[0]:
                reread[row["row_key"]] = (row["read_lsn"], row["columns"])
            continue
        if not is_counted and row["row_key"] in rows:
            duplicates.add(row["row_key"])
        multiplicity = rows[row["row_key"]][1] if is_counted and row["row_key"] in rows else 0
        rows[row["row_key"]] = (row["columns"], multiplicity + 1, row["partition_id"])
    for event in events:
        if event["commit_lsn"] >= (table.snapshot_lsn or 0):
            duplicates.discard(event["row_key"])
            _fold(rows, event, is_counted)
            read_lsn, columns = reread.get(event["row_key"], (0, {}))
            if event["is_partial"] and read_lsn > event["commit_lsn"] and event["row_key"] in rows:
                row_before = rows[event["row_key"]]
                rows[event["row_key"]] = ({**columns, **row_before[0]}, *row_before[1:])
    assert not duplicates, "rows were read in two chunks, although the log has no move between them"
    names = [column.name for column in table.columns]
    counted_rows: Counter[Row] = Counter()
    for columns, multiplicity, _ in rows.values():
        counted_rows[tuple(columns.get(name) for name in names)] += multiplicity
    return +counted_rows


def _fold(rows: dict[str, tuple[dict[str, Any], int, int]], event: dict[str, Any], is_counted: bool) -> None:
    key, op = event["row_key"], event["op"]
    if op == "truncate":
        for row in [k for k, v in rows.items() if event["partition_id"] in (None, v[2])]:
            del rows[row]
    elif op == "delete":
        columns, multiplicity, partition_id = rows.get(key, (event["columns"], 0, event["partition_id"]))
        rows[key] = (columns, multiplicity - 1 if is_counted else 0, partition_id)
    else:
        row_before = rows.get(event["old_row_key"] or key, ({}, 0, 0))
        columns = {**row_before[0], **event["columns"]} if event["is_partial"] else event["columns"]
        added = op == "insert" or event["old_row_key"] is not None
        multiplicity = rows.get(key, ({}, 0, 0))[1] + added if is_counted else 1
        rows[key] = (columns, multiplicity, event["partition_id"])


_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def _value(text: str) -> str | None:
    if text == "\\N":
        return None
    parts = iter(text)
    return "".join(_ESCAPES.get(n := next(parts), n) if c == "\\" else c for c in parts)


def chunk_settings(settings: JobSettings, size: int, workers: int = 1, **changes: Any) -> JobSettings:
    """Settings for chunks of `size` bytes; each worker claims, reads and commits one chunk at a time."""
    options = {"snapshot_chunk_bytes": size, "snapshot_batch_bytes": workers * size, "snapshot_workers": workers}
    return settings.model_copy(update={**options, **changes})


def done_chunks(lake: Lake, source: str) -> dict[tuple[str, int], int]:
    """The attempts that are marked done of the running or last snapshots, by snapshot and chunk."""
    tables = lake.tables.read(source).values()
    chunks = lake.chunks.read(str(table.snapshot_id) for table in tables)
    return {(chunk.snapshot_id, chunk.chunk): chunk.attempt for chunk in chunks if chunk.state == DONE}
