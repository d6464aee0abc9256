"""Decodes a pgoutput stream (protocol version 1) into `EventBatch`es: pure, fed with payloads.

A transaction may span any number of feeds: its rows come out as they come in, the position moves
when it ends. Ordinals count what the server sends, so they don't depend on how the stream is cut
into feeds. After an error a decoder is in no defined state: start a new one at a stored position.
"""

from collections.abc import Iterable
from datetime import datetime, timezone

import pyarrow as pa

from ingest.common.records import EVENTS, EventBatch, LogicalMessage
from ingest.sources.postgres.pgoutput import row_events
from ingest.sources.postgres.pgoutput.message_batch import (
    COMMIT,
    MESSAGE,
    RELATION,
    ROWS,
    TRUNCATE,
    Piece,
    Transaction,
    cut,
    scan,
)
from ingest.sources.postgres.pgoutput.messages import Registry, TableInfo, parse_message, parse_relation
from ingest.sources.postgres.pgoutput.payload_buffer import Payloads
from ingest.sources.postgres.pgoutput.relation_cache import Relations


class Decoder:
    """Decoder of one slot's stream. position: where it starts, if that is known; it never falls.

    changed: the commit_lsn of the last event of each table, as it was described for that; whoever reads it empties it.
    """

    def __init__(self, source: str, writer: int, registry: Registry, position: int | None = None) -> None:
        self.changed: dict[TableInfo, int] = {}
        self._source = source
        self._writer = writer
        self._relations = Relations(source, registry)
        self._position = position
        self._open: Transaction | None = None

    def feed(self, received: Iterable[Payloads], ingested_at: datetime | None = None) -> EventBatch:
        """Decode CopyData payloads as received: in order, each whole.

        ingested_at: stamped on the events, default now. The events come in chunks of a few MiB.
        Raises `Failure` for what is not pgoutput version 1 in text form, rows outside of a
        transaction, and keys that can't be known.
        """
        at = pa.scalar(ingested_at or datetime.now(timezone.utc), EVENTS.field("ingested_at").type)
        stamp = row_events.Stamp(self._source, self._writer, at)
        tables = [EVENTS.empty_table()]
        messages: list[LogicalMessage] = []
        transactions, reply = 0, False
        for wire in cut(received, self._source):
            piece = scan(wire, self._open)
            tables += self._decode(piece, stamp)
            messages += [_message(piece, int(number)) for number in piece.where(MESSAGE)]
            transactions += len(piece.where(COMMIT))
            reply |= piece.reply_requested()
        return EventBatch(
            events=pa.concat_tables(tables),
            position=self._position,
            transactions=transactions,
            in_transaction=self._open is not None,
            messages=tuple(messages),
            reply_requested=reply,
        )

    def describe_again(self) -> None:
        """Ask the registry about all relations anew, between two feeds."""
        self._relations.describe_again()

    def _decode(self, piece: Piece, stamp: row_events.Stamp) -> list[pa.Table]:
        """The events of a piece; relations, position and open transaction move on."""
        for number in map(int, piece.where(RELATION)):
            self._relations.add(number, parse_relation(piece.wire.message(number)))
        drafts = [row_events.of_rows(piece, self._relations)] if piece.where(*ROWS).size else []
        if piece.where(TRUNCATE).size:
            drafts.append(row_events.of_truncates(piece, self._relations))
        self._relations.forget()
        first, ordinals = row_events.number(piece, drafts, self._open.ordinals if self._open else 0)
        self._open = piece.last(int(ordinals[-1]))
        proven = piece.positions()
        if proven.size:
            self._position = max(int(proven.max()), self._position or 0)
        for draft in drafts:
            for info, lsn in row_events.last_changes(piece, draft).items():
                self.changed[info] = max(lsn, self.changed.get(info, 0))
        tables = [row_events.table(stamp, piece, draft, first) for draft in drafts]
        return [row_events.in_order(tables, drafts)] if tables else []


def _message(piece: Piece, number: int) -> LogicalMessage:
    transactional, lsn, prefix, content = parse_message(piece.wire.message(number))
    commit_lsn = int(piece.commit_lsn[piece.transaction[number]]) if transactional else None
    return LogicalMessage(prefix, content, lsn, transactional, commit_lsn)
