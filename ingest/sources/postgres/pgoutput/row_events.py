"""From row and Truncate messages to events: ordinals, and all else that `raw.wal_events` holds."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ingest.common.records import COLUMNS, DELETE, EVENTS, INSERT, TRUNCATE, UPDATE
from ingest.sources.postgres.pgoutput.message_batch import ROWS, Piece
from ingest.sources.postgres.pgoutput.message_batch import TRUNCATE as TRUNCATE_MESSAGE
from ingest.sources.postgres.pgoutput.messages import TableInfo, Version, parse_truncate
from ingest.sources.postgres.pgoutput.payload_buffer import I64
from ingest.sources.postgres.pgoutput.relation_cache import Relations
from ingest.sources.postgres.pgoutput.row_records import Layout, read

_OPS = pa.array([INSERT, UPDATE, DELETE, TRUNCATE])
_OP = np.zeros(256, np.int64)
_OP[list(b"IUDT")] = range(4)


@dataclass(frozen=True)
class Draft:
    """Events without their place in the transaction, as parallel vectors.

    message: number of the message they come from; within: their number in that message; version:
    index into `versions`; partition_id: by version. spare: messages that take an ordinal more than they
    have records.
    """

    message: I64
    within: I64
    op: pa.Array
    version: I64
    versions: Sequence[Version]
    partition_id: Sequence[int | None]
    row_key: pa.Array
    old_row_key: pa.Array
    is_partial: pa.Array
    columns: pa.Array
    spare: I64


@dataclass(frozen=True)
class Stamp:
    """What all events of a feed have in common."""

    source: str
    writer: int
    ingested_at: pa.Scalar


def of_rows(piece: Piece, relations: Relations) -> Draft:
    """The events of the inserts, updates and deletes."""
    messages = piece.where(*ROWS)
    at = piece.at[messages]
    version, versions = relations.resolve(piece.wire.u32(at + 1), messages)
    records = read(piece.wire, at, piece.end[messages], version, Layout(versions))
    return Draft(
        message=messages[records.row],
        within=records.second.astype(np.int64),
        op=_OPS.take(pa.array(_OP[records.op])),
        version=version[records.row],
        versions=versions,
        partition_id=[v.info.partition_id for v in versions],
        row_key=records.row_key,
        old_row_key=records.old_row_key,
        is_partial=pa.array(records.is_partial),
        columns=records.columns,
        spare=messages[records.alone],
    )


def of_truncates(piece: Piece, relations: Relations) -> Draft:
    """One event for each table that a Truncate message names."""
    named = [
        (int(number), within, relations.one(oid, int(number)))
        for number in piece.where(TRUNCATE_MESSAGE)
        for within, oid in enumerate(parse_truncate(piece.wire.message(int(number))))
    ]
    versions = [version for _, _, version in named]
    return Draft(
        message=np.array([number for number, _, _ in named], np.int64),
        within=np.array([within for _, within, _ in named], np.int64),
        op=pa.repeat(TRUNCATE, len(named)),
        version=np.arange(len(named)),
        versions=versions,
        partition_id=[None if v.info.whole else v.info.partition_id for v in versions],
        row_key=pa.nulls(len(named), pa.string()),
        old_row_key=pa.nulls(len(named), pa.string()),
        is_partial=pa.repeat(False, len(named)),
        columns=pa.nulls(len(named), COLUMNS),
        spare=np.empty(0, np.int64),
    )


def number(piece: Piece, drafts: Sequence[Draft], carried: int) -> tuple[I64, I64]:
    """The ordinal of each message's first record, and how many ordinals each transaction has had.

    carried: ordinals of transaction 0 before this piece. The second vector is by transaction number. An update that
    brings its old tuple takes two, also where its key stayed: what the key of an identity FULL is, the log doesn't
    tell, and the catalogue may say something else when the log is read again.
    """
    count = np.zeros(len(piece.kind), np.int64)
    for draft in drafts:
        count += np.bincount(draft.message, minlength=len(count)) + np.bincount(draft.spare, minlength=len(count))
    before = np.cumsum(count) - count
    base = before[piece.begin]
    base[0] = -carried
    last = np.concatenate((before[piece.begin[1:]], [count.sum()]))
    return before - base[piece.transaction], last - base


def last_changes(piece: Piece, draft: Draft) -> dict[TableInfo, int]:
    """The commit_lsn of the last event of each table, as it was described for that."""
    last = np.zeros(len(draft.versions), np.int64)
    # Of several in a version the last assignment counts, which is the highest.
    last[draft.version] = piece.commit_lsn[piece.transaction[draft.message]]
    return {version.info: int(lsn) for version, lsn in zip(draft.versions, last, strict=True) if lsn}


def table(stamp: Stamp, piece: Piece, draft: Draft, first: I64) -> pa.Table:
    """The draft as a table of schema EVENTS; first: from `number`."""
    rows = len(draft.message)
    transaction = piece.transaction[draft.message]
    infos = [version.info for version in draft.versions]
    version = pa.array(draft.version)
    values = {
        "source": pa.repeat(stamp.source, rows),
        "writer": pa.repeat(pa.scalar(stamp.writer, pa.int32()), rows),
        "commit_lsn": pa.array(piece.commit_lsn[transaction]),
        "commit_index": pa.array(first[draft.message] + draft.within).cast(pa.int32()),
        "change_lsn": pa.array(piece.change_lsn(draft.message)),
        "commit_ts": pa.array(piece.commit_ts[transaction]).cast(stamp.ingested_at.type),
        "xid": pa.array(piece.xid[transaction]),
        "op": draft.op,
        "table_name": pa.array([info.table_name for info in infos], pa.string()).take(version),
        "table_id": pa.array([info.table_id for info in infos], pa.string()).take(version),
        "partition_id": pa.array(draft.partition_id, pa.int64()).take(version),
        "row_key": draft.row_key,
        "old_row_key": draft.old_row_key,
        "is_partial": draft.is_partial,
        "columns": draft.columns,
        "ingested_at": pa.repeat(stamp.ingested_at, rows),
    }
    return pa.Table.from_pydict(values, EVENTS)


def in_order(tables: Sequence[pa.Table], drafts: Sequence[Draft]) -> pa.Table:
    """The drafts' tables as one, in the order of their messages."""
    if len(tables) == 1:
        return tables[0]
    order = np.argsort(np.concatenate([draft.message for draft in drafts]), kind="stable")
    return pa.concat_tables(tables).combine_chunks().take(pa.array(order))
