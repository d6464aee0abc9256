"""The records between modules: sources create them and the lake commits them; neither imports the other.

`EVENTS`, `SNAPSHOT_ROWS` and `POSITIONS` are the Arrow schemas of `raw.wal_events`, `raw.snapshot_rows` and
`raw.stream_positions`; the tables are created from them. Positions and LSNs are 64-bit numbers, timestamps are
microseconds in UTC. `columns` holds each value as the source prints it: a NULL is a key with a NULL value, an unknown
value is an absent key.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

INSERT, UPDATE, DELETE, TRUNCATE = "insert", "update", "delete", "truncate"
OPS = (INSERT, UPDATE, DELETE, TRUNCATE)

_TIMESTAMP = pa.timestamp("us", tz="UTC")
COLUMNS = pa.map_(pa.string(), pa.string())

EVENTS = pa.schema(
    [
        ("source", pa.string()),
        ("writer", pa.int32()),
        ("commit_lsn", pa.int64()),
        ("commit_index", pa.int32()),
        ("change_lsn", pa.int64()),
        ("commit_ts", _TIMESTAMP),
        ("xid", pa.int64()),
        ("op", pa.string()),
        ("table_name", pa.string()),
        ("table_id", pa.string()),
        ("partition_id", pa.int64()),
        ("row_key", pa.string()),
        ("old_row_key", pa.string()),
        ("is_partial", pa.bool_()),
        ("columns", COLUMNS),
        ("ingested_at", _TIMESTAMP),
    ]
)

SNAPSHOT_ROWS = pa.schema(
    [
        ("source", pa.string()),
        ("table_name", pa.string()),
        ("table_id", pa.string()),
        ("partition_id", pa.int64()),
        ("snapshot_id", pa.string()),
        ("chunk", pa.int32()),
        ("attempt", pa.int32()),
        ("snapshot_lsn", pa.int64()),
        ("read_lsn", pa.int64()),
        ("row_key", pa.string()),
        ("columns", COLUMNS),
        ("ingested_at", _TIMESTAMP),
    ]
)

POSITIONS = pa.schema(
    [
        ("source", pa.string()),
        ("writer", pa.int32()),
        ("slot", pa.string()),
        ("system_id", pa.string()),
        ("timeline", pa.int32()),
        ("start_position", pa.int64()),
        ("position", pa.int64()),
        ("token", pa.string()),
        ("updated_at", _TIMESTAMP),
    ]
)


@dataclass(frozen=True)
class LogicalMessage:
    """A message in the source's log (`pg_logical_emit_message`); not an event.

    lsn: its position in the log. commit_lsn: that of its transaction; None outside of a transaction.
    """

    prefix: str
    content: bytes
    lsn: int
    transactional: bool
    commit_lsn: int | None


@dataclass(frozen=True)
class EventBatch:
    """The events that one call of a feed returns.

    events: a table of schema EVENTS in the order received, including the rows of an open transaction. position:
    everything with commit_lsn < position has been returned so far (None: not known yet); it never decreases.
    transactions: the number of finished transactions. in_transaction: whether one is open at the end.
    reply_requested: the source asks for a status message at once. token: see `Position`.
    """

    events: pa.Table
    position: int | None
    transactions: int = 0
    in_transaction: bool = False
    messages: tuple[LogicalMessage, ...] = ()
    reply_requested: bool = False
    token: str | None = None


def table_id(
    source: str,
    relation: int | str,
    table_name: str,
    key_columns: Sequence[str] | None,
    identity: str,
) -> str:
    """The id of one generation of a table: 16 hex digits.

    relation: the oid, or a collection's UUID. table_name: `schema.name`. key_columns: in key order,
    None where there is no key. identity: the replica identity's letter (`d`, `i`, `f`, `n`).
    """
    key = None if key_columns is None else list(key_columns)
    text = json.dumps([source, relation, table_name, key, identity], ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
