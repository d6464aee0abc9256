"""Decodes a pgoutput stream (protocol version 1) into `EventBatch`es. Pure but for the registry that is passed in.

A transaction may span any number of feeds: its events are returned as they arrive, and the position advances when it
ends. Ordinals count what the server sends, so they do not depend on how the stream is divided into feeds. After an
error the decoder's state is undefined: create a new one at a stored position.
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
    MessageBatch,
    Transaction,
    index_messages,
    split,
)
from ingest.sources.postgres.pgoutput.messages import RelationRegistry, TableIdentity, parse_message, parse_relation
from ingest.sources.postgres.pgoutput.payload_buffer import PayloadOffsets
from ingest.sources.postgres.pgoutput.relation_cache import RelationCache


class Decoder:
    """Decoder of one slot's stream. position: where the stream starts, if known; it never decreases.

    changed: the commit_lsn of the last event of each table, by the table's description for that event. The caller that
    reads it clears it.
    """

    def __init__(self, source: str, writer: int, registry: RelationRegistry, position: int | None = None) -> None:
        self.changed: dict[TableIdentity, int] = {}
        self._source = source
        self._writer = writer
        self._relations = RelationCache(source, registry)
        self._position = position
        self._open: Transaction | None = None

    def feed(self, received: Iterable[PayloadOffsets], ingested_at: datetime | None = None) -> EventBatch:
        """Decode CopyData payloads as received: in order, each whole.

        ingested_at: written to the events, default now. The table of events has Arrow chunks of a few MiB.
        Raises `Failure` for input that is not pgoutput version 1 in text form, for rows outside of a transaction, and
        for unknown keys.
        """
        ingested = pa.scalar(ingested_at or datetime.now(timezone.utc), EVENTS.field("ingested_at").type)
        constants = row_events.EventConstants(self._source, self._writer, ingested)
        tables = [EVENTS.empty_table()]
        messages: list[LogicalMessage] = []
        transactions, reply = 0, False
        for payloads in split(received, self._source):
            batch = index_messages(payloads, self._open)
            tables += self._decode(batch, constants)
            messages += [_message(batch, int(number)) for number in batch.find_messages(MESSAGE)]
            transactions += len(batch.find_messages(COMMIT))
            reply |= batch.reply_requested()
        return EventBatch(
            events=pa.concat_tables(tables),
            position=self._position,
            transactions=transactions,
            in_transaction=self._open is not None,
            messages=tuple(messages),
            reply_requested=reply,
        )

    def describe_again(self) -> None:
        """Ask the registry about all relations again. Call it between two feeds."""
        self._relations.describe_again()

    def _decode(self, batch: MessageBatch, constants: row_events.EventConstants) -> list[pa.Table]:
        """The events of a batch. Updates relations, position and open transaction."""
        for number in map(int, batch.find_messages(RELATION)):
            self._relations.add(number, parse_relation(batch.payloads.message(number)))
        event_groups = [row_events.from_rows(batch, self._relations)] if batch.find_messages(*ROWS).size else []
        if batch.find_messages(TRUNCATE).size:
            event_groups.append(row_events.from_truncates(batch, self._relations))
        self._relations.end_batch()
        first, ordinals = row_events.assign_ordinals(batch, event_groups, self._open.ordinals if self._open else 0)
        self._open = batch.open_transaction(int(ordinals[-1]))
        proven = batch.positions()
        if proven.size:
            self._position = max(int(proven.max()), self._position or 0)
        for events in event_groups:
            for info, lsn in row_events.last_changes(batch, events).items():
                self.changed[info] = max(lsn, self.changed.get(info, 0))
        tables = [row_events.to_table(constants, batch, events, first) for events in event_groups]
        return [row_events.merge_in_order(tables, event_groups)] if tables else []


def _message(batch: MessageBatch, number: int) -> LogicalMessage:
    transactional, lsn, prefix, content = parse_message(batch.payloads.message(number))
    commit_lsn = int(batch.commit_lsn[batch.transaction[number]]) if transactional else None
    return LogicalMessage(prefix, content, lsn, transactional, commit_lsn)
