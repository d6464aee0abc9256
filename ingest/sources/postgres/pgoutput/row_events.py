"""Converts row and Truncate messages to events with all columns of `raw.wal_events`, including ordinals."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ingest.common.records import COLUMNS, DELETE, EVENTS, INSERT, TRUNCATE, UPDATE
from ingest.sources.postgres.pgoutput.message_batch import ROWS, MessageBatch
from ingest.sources.postgres.pgoutput.message_batch import TRUNCATE as TRUNCATE_MESSAGE
from ingest.sources.postgres.pgoutput.messages import RelationVersion, TableIdentity, parse_truncate
from ingest.sources.postgres.pgoutput.payload_buffer import I64
from ingest.sources.postgres.pgoutput.relation_cache import RelationCache
from ingest.sources.postgres.pgoutput.row_records import ColumnLayout, decode_rows

_OPS = pa.array([INSERT, UPDATE, DELETE, TRUNCATE])
_OP = np.zeros(256, np.int64)
_OP[list(b"IUDT")] = range(4)


@dataclass(frozen=True)
class EventColumns:
    """Events without their ordinals, as parallel vectors.

    message: number of the event's message; message_index: the event's index within the message; version: index into
    `versions`; partition_id: by version. reserved_ordinals: messages that take one ordinal more than they have events.
    """

    message: I64
    message_index: I64
    op: pa.Array
    version: I64
    versions: Sequence[RelationVersion]
    partition_id: Sequence[int | None]
    row_key: pa.Array
    old_row_key: pa.Array
    is_partial: pa.Array
    columns: pa.Array
    reserved_ordinals: I64


@dataclass(frozen=True)
class EventConstants:
    """The column values that all events of a feed share."""

    source: str
    writer: int
    ingested_at: pa.Scalar


def from_rows(batch: MessageBatch, relations: RelationCache) -> EventColumns:
    """The events of the insert, update and delete messages."""
    messages = batch.find_messages(*ROWS)
    start = batch.start[messages]
    version, versions = relations.resolve(batch.payloads.u32(start + 1), messages)
    records = decode_rows(batch.payloads, start, batch.end[messages], version, ColumnLayout(versions))
    return EventColumns(
        message=messages[records.row],
        message_index=records.second.astype(np.int64),
        op=_OPS.take(pa.array(_OP[records.op])),
        version=version[records.row],
        versions=versions,
        partition_id=[v.info.partition_id for v in versions],
        row_key=records.row_key,
        old_row_key=records.old_row_key,
        is_partial=pa.array(records.is_partial),
        columns=records.columns,
        reserved_ordinals=messages[records.unchanged_key],
    )


def from_truncates(batch: MessageBatch, relations: RelationCache) -> EventColumns:
    """One event for each table that a Truncate message names."""
    truncates = [
        (int(number), message_index, relations.find_version(oid, int(number)))
        for number in batch.find_messages(TRUNCATE_MESSAGE)
        for message_index, oid in enumerate(parse_truncate(batch.payloads.message(int(number))))
    ]
    versions = [version for _, _, version in truncates]
    return EventColumns(
        message=np.array([number for number, _, _ in truncates], np.int64),
        message_index=np.array([message_index for _, message_index, _ in truncates], np.int64),
        op=pa.repeat(TRUNCATE, len(truncates)),
        version=np.arange(len(truncates)),
        versions=versions,
        partition_id=[None if v.info.is_whole_table else v.info.partition_id for v in versions],
        row_key=pa.nulls(len(truncates), pa.string()),
        old_row_key=pa.nulls(len(truncates), pa.string()),
        is_partial=pa.repeat(False, len(truncates)),
        columns=pa.nulls(len(truncates), COLUMNS),
        reserved_ordinals=np.empty(0, np.int64),
    )


def assign_ordinals(batch: MessageBatch, event_groups: Sequence[EventColumns], carried: int) -> tuple[I64, I64]:
    """The ordinal of each message's first event, and the number of ordinals of each transaction.

    carried: ordinals of transaction 0 before this batch. An update with its old tuple takes two ordinals even if its
    key is unchanged: under identity FULL the key is not in the log, and the catalog may have another key when the log
    is read again.
    """
    count = np.zeros(len(batch.kind), np.int64)
    for events in event_groups:
        count += np.bincount(events.message, minlength=len(count))
        count += np.bincount(events.reserved_ordinals, minlength=len(count))
    before = np.cumsum(count) - count
    base = before[batch.begin]
    base[0] = -carried
    last = np.concatenate((before[batch.begin[1:]], [count.sum()]))
    return before - base[batch.transaction], last - base


def last_changes(batch: MessageBatch, events: EventColumns) -> dict[TableIdentity, int]:
    """The commit_lsn of the last event of each table, as it was described for that."""
    last = np.zeros(len(events.versions), np.int64)
    # numpy keeps the last assignment per version, which is the highest LSN.
    last[events.version] = batch.commit_lsn[batch.transaction[events.message]]
    return {version.info: int(lsn) for version, lsn in zip(events.versions, last, strict=True) if lsn}


def to_table(constants: EventConstants, batch: MessageBatch, events: EventColumns, first: I64) -> pa.Table:
    """The events as a table of schema EVENTS. first: of `assign_ordinals`."""
    rows = len(events.message)
    transaction = batch.transaction[events.message]
    infos = [version.info for version in events.versions]
    version = pa.array(events.version)
    values = {
        "source": pa.repeat(constants.source, rows),
        "writer": pa.repeat(pa.scalar(constants.writer, pa.int32()), rows),
        "commit_lsn": pa.array(batch.commit_lsn[transaction]),
        "commit_index": pa.array(first[events.message] + events.message_index).cast(pa.int32()),
        "change_lsn": pa.array(batch.change_lsn(events.message)),
        "commit_ts": pa.array(batch.commit_ts[transaction]).cast(constants.ingested_at.type),
        "xid": pa.array(batch.xid[transaction]),
        "op": events.op,
        "table_name": pa.array([info.table_name for info in infos], pa.string()).take(version),
        "table_id": pa.array([info.table_id for info in infos], pa.string()).take(version),
        "partition_id": pa.array(events.partition_id, pa.int64()).take(version),
        "row_key": events.row_key,
        "old_row_key": events.old_row_key,
        "is_partial": events.is_partial,
        "columns": events.columns,
        "ingested_at": pa.repeat(constants.ingested_at, rows),
    }
    return pa.Table.from_pydict(values, EVENTS)


def merge_in_order(tables: Sequence[pa.Table], event_groups: Sequence[EventColumns]) -> pa.Table:
    """One table of all events, in the order of their messages."""
    if len(tables) == 1:
        return tables[0]
    order = np.argsort(np.concatenate([events.message for events in event_groups]), kind="stable")
    return pa.concat_tables(tables).combine_chunks().take(pa.array(order))
