"""The documents of a collection by the lake, folded from snapshot and events, and by the source.

The source's documents are converted to canonical Extended JSON by PyMongo, independently of the lake's.
"""

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any, ClassVar

from bson import json_util
from bson.codec_options import CodecOptions, DatetimeConversion
from pymongo import MongoClient

from ingest.config.sources_file import MongoSource
from ingest.lake.source_tables import DONE
from ingest.positions.position import min_position
from ingest.snapshot.snapshotter import SnapshotHooks, Snapshotter
from ingest.sources.mongodb import mongodb_connection, mongodb_server
from ingest.sources.mongodb.change_stream.change_stream_feed import MongoFeed, open_writer, start_over
from ingest.sources.mongodb.snapshot.mongodb_snapshot_source import MongoCollections
from ingest.sources.mongodb.stream_scope import StreamScope
from ingest.stream.batch_committer import CommitHooks
from ingest.stream.stream_writer import StreamWriter
from tests.harness import postgres_jobs

Client = MongoClient[dict[str, Any]]
_DATES = DatetimeConversion.DATETIME_MS
_EXACT = CodecOptions[dict[str, Any]](datetime_conversion=_DATES)
_CANONICAL = json_util.JSONOptions(json_mode=json_util.JSONMode.CANONICAL, datetime_conversion=_DATES)
Document = tuple[tuple[str, str | None], ...]


def canonical(document: dict[str, Any]) -> Document:
    """A document as sorted (field, JSON), None for null."""
    fields = json.loads(json_util.dumps(document, json_options=_CANONICAL))
    return tuple(sorted((name, None if value is None else _text(value)) for name, value in fields.items()))


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@dataclass
class MongoJobs(postgres_jobs.PostgresJobs):
    """A source's stream writer and snapshot worker, created for each run as in a new process."""

    source: MongoSource  # type: ignore[assignment]

    # Documents are looked up again.
    VARYING: ClassVar[tuple[str, ...]] = ("ingested_at", "columns")

    def emit_marker(self) -> int:
        with mongodb_connection.connect(self.source.uri.get_secret_value(), 5) as client:
            return mongodb_server.emit_marker(client, StreamScope.parse(self.position().slot).level)

    def position(self) -> Any:
        return open_writer(self.lake, self.source, self.settings)

    def open(self) -> None:
        """Registers the position from which changes are streamed."""
        self.position()

    def resnapshot(self) -> None:
        """Does the same as `tidemark resnapshot --all`."""
        start_over(self.lake, self.source, self.settings)

    def writer(self, hooks: CommitHooks | None = None, writer: int = 1) -> StreamWriter:
        assert writer == 1
        position = self.position()
        feed = MongoFeed(self.lake, self.source, self.settings, position)
        return StreamWriter(self.lake, feed, position, self.settings, hooks)

    def snapshotter(self, hooks: SnapshotHooks | None = None) -> Snapshotter:
        collections = MongoCollections(self.lake, self.source, self.settings, StreamScope.parse(self.position().slot))
        return Snapshotter(self.lake, collections, self.source.name, self.settings, hooks)

    def lake_documents(self, name: str) -> Counter[Document]:
        """The collection's documents by snapshot and stream."""
        table = self.table(name)
        assert table.state == DONE, f"{name} is {table.state}: {table.note}"
        position = min_position(self.lake.positions.read(self.source.name), self.source.name)
        assert position is not None
        assert position > (table.complete_lsn or 0)
        rows: dict[str, dict[str, Any]] = {}
        for row in self.snapshot_rows(table):
            assert row["row_key"] not in rows, "a document was read twice"
            rows[row["row_key"]] = row["columns"]
        for event in self.events(table.table_id):
            if event["commit_lsn"] < (table.snapshot_lsn or 0):
                continue
            if event["op"] == "truncate":
                rows.clear()
            elif event["op"] == "delete":
                rows.pop(event["row_key"], None)
            else:
                rows[event["row_key"]] = event["columns"]
        return Counter(tuple(sorted(columns.items())) for columns in rows.values())

    def source_documents(self, client: Client, name: str) -> Counter[Document]:
        database, _, collection = name.partition(".")
        documents = client[database].get_collection(collection, codec_options=_EXACT).find()
        return Counter(canonical(document) for document in documents)

    def assert_documents_equal(self, client: Client, *names: str) -> None:
        """Lake and source have the same documents."""
        for name in names:
            lake, source = self.lake_documents(name), self.source_documents(client, name)
            assert lake == source, f"{name}: only lake {lake - source}, only source {source - lake}"
