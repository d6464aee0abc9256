"""pgoutput messages, built by hand, are decoded into events."""

import struct
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any, Final

import pytest

from ingest.common.errors import Failure
from ingest.common.records import EVENTS, EventBatch
from ingest.sources.postgres.pgoutput import message_batch
from ingest.sources.postgres.pgoutput.decoder import Decoder
from ingest.sources.postgres.pgoutput.messages import Relation, TableIdentity
from ingest.sources.postgres.pgoutput.payload_buffer import PADDING, PayloadOffsets

# --- Messages as the server sends them ------------------------------------------------------------

TOAST: Final = object()  # an unchanged TOAST value
BINARY: Final = object()
Value = Any  # str, None (NULL), TOAST, BINARY
Event = dict[str, Any]


def xlog(message: bytes, lsn: int = 0) -> bytes:
    return b"w" + struct.pack(">QQq", lsn, lsn, 0) + message


def keepalive(end: int, *, reply: bool = False) -> bytes:
    return b"k" + struct.pack(">Qq?", end, 0, reply)


def begin(lsn: int, xid: int = 7, ts: int = 0) -> bytes:
    return xlog(b"B" + struct.pack(">QqI", lsn, ts, xid), lsn)


def commit(lsn: int, end: int | None = None) -> bytes:
    return xlog(b"C" + struct.pack(">BQQq", 0, lsn, lsn + 8 if end is None else end, 0), lsn)


def relation(oid: int, columns: str, *, identity: str = "d", name: str = "public.t") -> bytes:
    """columns: names separated by spaces; those of the replica identity have a star."""
    schema, table = name.split(".")
    parts = [b"R", struct.pack(">I", oid), f"{schema}\0{table}\0{identity}".encode()]
    names = columns.split()
    parts.append(struct.pack(">H", len(names)))
    for column in names:
        flags = column.endswith("*") or identity == "f"
        parts.append(struct.pack(">?", flags) + column.rstrip("*").encode() + b"\0")
        parts.append(struct.pack(">Ii", 25, -1))
    return xlog(b"".join(parts))


def tuple_data(values: Sequence[Value]) -> bytes:
    parts = [struct.pack(">H", len(values))]
    for value in values:
        if value is None:
            parts.append(b"n")
        elif value is TOAST:
            parts.append(b"u")
        else:
            data = b"\0\1" if value is BINARY else value.encode()
            parts.append((b"b" if value is BINARY else b"t") + struct.pack(">I", len(data)) + data)
    return b"".join(parts)


def insert(oid: int, *new: Value, lsn: int = 0) -> bytes:
    return xlog(b"I" + struct.pack(">I", oid) + b"N" + tuple_data(new), lsn)


def update(
    oid: int,
    *new: Value,
    key: Sequence[Value] | None = None,
    old: Sequence[Value] | None = None,
    lsn: int = 0,
) -> bytes:
    before = b""
    if key is not None:
        before = b"K" + tuple_data(key)
    if old is not None:
        before = b"O" + tuple_data(old)
    return xlog(b"U" + struct.pack(">I", oid) + before + b"N" + tuple_data(new), lsn)


def delete(oid: int, *, key: Sequence[Value] | None = None, old: Sequence[Value] = (), lsn: int = 0) -> bytes:
    data = b"O" + tuple_data(old) if key is None else b"K" + tuple_data(key)
    return xlog(b"D" + struct.pack(">I", oid) + data, lsn)


def truncate(*oids: int, lsn: int = 0) -> bytes:
    return xlog(b"T" + struct.pack(f">IB{len(oids)}I", len(oids), 0, *oids), lsn)


def logical_message(prefix: str, content: bytes, lsn: int, *, transactional: bool = True) -> bytes:
    head = struct.pack(">BQ", transactional, lsn) + prefix.encode() + b"\0"
    return xlog(b"M" + head + struct.pack(">I", len(content)) + content, lsn)


ORIGIN = xlog(b"O" + struct.pack(">Q", 1) + b"elsewhere\0")
TYPE = xlog(b"Y" + struct.pack(">I", 9) + b"public\0mood\0")


# --- Decoding them --------------------------------------------------------------------------------


class Catalog:
    """The keys by oid that were registered here; otherwise the replica identity in column order."""

    def __init__(self, **keys: str) -> None:
        self.keys = {int(oid[1:]): tuple(key.split()) or None for oid, key in keys.items()}
        self.whole = False
        self.asked: list[Relation] = []

    def describe(self, relation: Relation, *, again: bool = False) -> TableIdentity:
        assert not again
        self.asked.append(relation)
        default = () if relation.identity == "f" else relation.identity_columns
        key = self.keys.get(relation.oid, default or None)
        name = f"{relation.schema}.{relation.name}"
        return TableIdentity(f"id{relation.oid}", name, relation.oid, relation.oid if self.whole else 0, key)


def decode(*payloads: bytes, catalog: Catalog | None = None, **options: int) -> EventBatch:
    return Decoder("shop", 1, catalog or Catalog(), **options).feed([PayloadOffsets.from_messages(payloads)])


def events(batch: EventBatch) -> list[Event]:
    batch.events.validate(full=True)
    assert batch.events.schema == EVENTS
    rows: list[Event] = batch.events.to_pylist(maps_as_pydicts="strict")
    return rows


def changes(*payloads: bytes, catalog: Catalog | None = None) -> list[tuple[Any, ...]]:
    """(op, row_key, old_row_key, columns) of the events of one transaction with these messages."""
    rows = events(decode(begin(100), *payloads, commit(100), catalog=catalog))
    assert [row["commit_index"] for row in rows] == list(range(len(rows)))
    return [(row["op"], row["row_key"], row["old_row_key"], row["columns"]) for row in rows]


T1 = relation(1, "id* v")
FULL = relation(1, "id v", identity="f")
COMPOSITE = relation(1, "a* v b*")


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (insert(1, "1", "x"), [("insert", '["1"]', None, {"id": "1", "v": "x"})]),
        (insert(1, "1", None), [("insert", '["1"]', None, {"id": "1", "v": None})]),
        (insert(1, "1", ""), [("insert", '["1"]', None, {"id": "1", "v": ""})]),
        (insert(1, 'ä"', "🐢"), [("insert", '["ä\\""]', None, {"id": 'ä"', "v": "🐢"})]),
        (update(1, "1", "y"), [("update", '["1"]', None, {"id": "1", "v": "y"})]),
        (update(1, "1", TOAST), [("update", '["1"]', None, {"id": "1"})]),
        (delete(1, key=["1", None]), [("delete", '["1"]', None, {"id": "1"})]),
        (
            update(1, "2", "y", key=["1", None]),
            [
                ("delete", '["1"]', None, {"id": "1"}),
                ("update", '["2"]', '["1"]', {"id": "2", "v": "y"}),
            ],
        ),
        (
            update(1, "2", TOAST, key=["1", None]),
            [("delete", '["1"]', None, {"id": "1"}), ("update", '["2"]', '["1"]', {"id": "2"})],
        ),
        # The server may send an unchanged key if it is stored out of line.
        (update(1, "1", "y", key=["1", None]), [("update", '["1"]', None, {"id": "1", "v": "y"})]),
        (
            update(1, TOAST, "y", key=["1", None]),
            [("update", '["1"]', None, {"id": "1", "v": "y"})],
        ),
    ],
)
def test_a_row_under_replica_identity_default_is_decoded(message: bytes, expected: list[Any]) -> None:
    assert changes(T1, message) == expected


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (insert(1, "1", "x"), [("insert", '["1"]', None, {"id": "1", "v": "x"})]),
        (delete(1, old=["1", None]), [("delete", '["1"]', None, {"id": "1", "v": None})]),
        (
            update(1, "1", "y", old=["1", "x"]),
            [("update", '["1"]', None, {"id": "1", "v": "y"})],
        ),
        (
            update(1, "1", TOAST, old=["1", "big"]),
            [("update", '["1"]', None, {"id": "1", "v": "big"})],
        ),
        (
            update(1, "1", TOAST, old=["1", TOAST]),
            [("update", '["1"]', None, {"id": "1"})],
        ),
        (
            update(1, "2", TOAST, old=["1", "big"]),
            [
                ("delete", '["1"]', None, {"id": "1", "v": "big"}),
                ("update", '["2"]', '["1"]', {"id": "2", "v": "big"}),
            ],
        ),
        (
            update(1, TOAST, None, old=["1", "x"]),
            [("update", '["1"]', None, {"id": "1", "v": None})],
        ),
    ],
)
def test_a_row_under_identity_full_with_a_primary_key_is_decoded(message: bytes, expected: list[Any]) -> None:
    assert changes(FULL, message, catalog=Catalog(_1="id")) == expected


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (insert(1, "1", None), [("insert", '["1",null]', None, {"id": "1", "v": None})]),
        (delete(1, old=["1", "x"]), [("delete", '["1","x"]', None, {"id": "1", "v": "x"})]),
        (
            update(1, "1", "y", old=["1", "x"]),
            [
                ("delete", '["1","x"]', None, {"id": "1", "v": "x"}),
                ("update", '["1","y"]', '["1","x"]', {"id": "1", "v": "y"}),
            ],
        ),
        (
            update(1, "1", "x", old=["1", "x"]),
            [("update", '["1","x"]', None, {"id": "1", "v": "x"})],
        ),
        (
            update(1, "1", TOAST, old=["1", "big"]),
            [("update", '["1","big"]', None, {"id": "1", "v": "big"})],
        ),
        (
            update(1, "null", None, old=["null", "null"]),
            [
                ("delete", '["null","null"]', None, {"id": "null", "v": "null"}),
                ("update", '["null",null]', '["null","null"]', {"id": "null", "v": None}),
            ],
        ),
    ],
)
def test_a_row_under_identity_full_without_a_key_is_decoded(message: bytes, expected: list[Any]) -> None:
    assert changes(FULL, message) == expected


def test_the_key_of_a_table_without_identity_is_all_values() -> None:
    for identity in "nd":
        nothing = relation(1, "a b", identity=identity)
        assert changes(nothing, insert(1, "x", "y")) == [("insert", '["x","y"]', None, {"a": "x", "b": "y"})]


def test_the_key_order_is_that_of_the_catalog() -> None:
    catalog = Catalog(_1="b a")
    assert changes(COMPOSITE, insert(1, "1", "v", "2"), delete(1, key=["1", None, "2"]), catalog=catalog) == [
        ("insert", '["2","1"]', None, {"a": "1", "v": "v", "b": "2"}),
        ("delete", '["2","1"]', None, {"a": "1", "b": "2"}),
    ]


def test_columns_can_have_any_name() -> None:
    table = relation(1, 'source* row_key Ünï"x seq')
    assert changes(table, insert(1, "1", "2", "3", "4"))[0][3] == {
        "source": "1",
        "row_key": "2",
        'Ünï"x': "3",
        "seq": "4",
    }


def test_a_table_without_columns_has_events() -> None:
    empty = relation(1, "", identity="f")
    assert changes(empty, insert(1), insert(1), delete(1)) == [
        ("insert", "[]", None, {}),
        ("insert", "[]", None, {}),
        ("delete", "[]", None, {}),
    ]


def test_tables_of_several_shapes_in_one_transaction_are_decoded() -> None:
    other = relation(2, "k* a b c", name="public.u")
    keyless = relation(3, "x y", identity="f", name="public.v")
    empty = relation(4, "", identity="f", name="public.w")
    assert changes(
        *(T1, insert(1, "1", "a"), empty, insert(4), other, insert(2, "1", "a", None, "c")),
        *(keyless, update(3, "1", TOAST, old=["2", "b"]), update(1, "1", TOAST), insert(4)),
        *(update(2, "2", TOAST, "", "c", key=["1", None, None, None]), delete(1, key=["1", None])),
    ) == [
        ("insert", '["1"]', None, {"id": "1", "v": "a"}),
        ("insert", "[]", None, {}),
        ("insert", '["1"]', None, {"k": "1", "a": "a", "b": None, "c": "c"}),
        ("delete", '["2","b"]', None, {"x": "2", "y": "b"}),
        ("update", '["1","b"]', '["2","b"]', {"x": "1", "y": "b"}),
        ("update", '["1"]', None, {"id": "1"}),
        ("insert", "[]", None, {}),
        ("delete", '["1"]', None, {"k": "1"}),
        ("update", '["2"]', '["1"]', {"k": "2", "b": "", "c": "c"}),
        ("delete", '["1"]', None, {"id": "1"}),
    ]


def test_an_update_without_a_value_is_partial() -> None:
    batch = decode(
        *(begin(1), T1, insert(1, "1", "a"), update(1, "1", "b"), update(1, "1", TOAST)),
        *(
            update(1, "2", TOAST, key=["1", None]),
            delete(1, key=["2", None]),
            truncate(1),
            commit(1),
        ),
    )
    assert [(row["op"], row["is_partial"]) for row in events(batch)] == [
        ("insert", False),
        ("update", False),
        ("update", True),
        ("delete", False),
        ("update", True),
        ("delete", False),
        ("truncate", False),
    ]


def test_an_event_has_its_positions_and_commit_time() -> None:
    now = datetime(2026, 11, 21, tzinfo=timezone.utc)
    catalog = Catalog()
    (event,) = (
        Decoder("shop", 3, catalog)
        .feed(
            [
                PayloadOffsets.from_messages(
                    [begin(2**40, 9, 1_000_001), T1, insert(1, "1", "x", lsn=77), commit(2**40)]
                )
            ],
            now,
        )
        .events.to_pylist(maps_as_pydicts="strict")
    )
    assert event == {
        "source": "shop",
        "writer": 3,
        "commit_lsn": 2**40,
        "commit_index": 0,
        "change_lsn": 77,
        "commit_ts": datetime(2000, 1, 1, 0, 0, 1, 1, tzinfo=timezone.utc),
        "xid": 9,
        "op": "insert",
        "table_name": "public.t",
        "table_id": "id1",
        "partition_id": 1,
        "row_key": '["1"]',
        "old_row_key": None,
        "is_partial": False,
        "columns": {"id": "1", "v": "x"},
        "ingested_at": now,
    }


def test_a_truncate_is_one_event_per_table_in_order() -> None:
    other = relation(2, "id*", name="other.t")
    batch = decode(
        *(begin(1), T1, insert(1, "1", "a"), other, truncate(2, 1, lsn=5), insert(2, "3")),
        commit(1),
    )
    assert [
        (r["commit_index"], r["op"], r["table_name"], r["partition_id"], r["columns"], r["row_key"])
        for r in events(batch)
    ] == [
        (0, "insert", "public.t", 1, {"id": "1", "v": "a"}, '["1"]'),
        (1, "truncate", "other.t", 2, None, None),
        (2, "truncate", "public.t", 1, None, None),
        (3, "insert", "other.t", 2, {"id": "3"}, '["3"]'),
    ]
    assert [row["change_lsn"] for row in events(batch)] == [0, 5, 5, 0]


def test_a_truncate_of_a_partitioned_table_has_no_partition() -> None:
    catalog = Catalog()
    catalog.whole = True
    batch = decode(begin(1), T1, insert(1, "1", "a"), truncate(1), commit(1), catalog=catalog)
    assert [row["partition_id"] for row in events(batch)] == [1, None]


def test_a_relation_changes_between_two_rows() -> None:
    assert changes(
        *(T1, insert(1, "1", "a"), relation(1, "id*"), insert(1, "2"), truncate(1)),
        *(relation(1, "id* w x"), insert(1, "3", "b", "c")),
    ) == [
        ("insert", '["1"]', None, {"id": "1", "v": "a"}),
        ("insert", '["2"]', None, {"id": "2"}),
        ("truncate", None, None, None),
        ("insert", '["3"]', None, {"id": "3", "w": "b", "x": "c"}),
    ]


def test_a_replica_identity_switches_between_two_rows() -> None:
    assert changes(*(T1, delete(1, key=["1", None]), FULL, delete(1, old=["2", "x"])), T1, insert(1, "3", "y")) == [
        ("delete", '["1"]', None, {"id": "1"}),
        ("delete", '["2","x"]', None, {"id": "2", "v": "x"}),
        ("insert", '["3"]', None, {"id": "3", "v": "y"}),
    ]


def test_the_catalog_is_read_at_every_relation_message() -> None:
    catalog = Catalog()
    decode(T1, T1, relation(1, "id*", name="pg_catalog.t"), catalog=catalog)
    assert [len(r.columns) for r in catalog.asked] == [2, 2, 1]
    assert decode(relation(1, "id*", name=".t"), catalog=catalog).events.num_rows == 0
    assert catalog.asked[-1].schema == "pg_catalog"


# --- Transactions and positions -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("payloads", "position", "transactions"),
    [
        ([], None, 0),
        ([begin(10)], None, 0),
        ([begin(10), commit(10, 15)], 15, 1),
        ([begin(10), commit(10, 15), begin(15), commit(15, 30)], 30, 2),
        ([begin(10), commit(10, 15), begin(15)], 15, 1),
        ([keepalive(12)], 12, 0),
        ([begin(10), keepalive(12)], None, 0),
        ([begin(10), keepalive(99), commit(10, 15)], 15, 1),
        ([begin(10), commit(10, 15), keepalive(16)], 16, 1),
        ([begin(10), commit(10, 15), keepalive(3)], 15, 1),
        ([keepalive(16), keepalive(12)], 16, 0),
        ([keepalive(5), begin(10), keepalive(12), T1], 5, 0),
    ],
)
def test_positions_are_those_of_finished_transactions_and_keepalives(
    payloads: list[bytes], position: int | None, transactions: int
) -> None:
    batch = decode(*payloads)
    assert (batch.position, batch.transactions) == (position, transactions)
    decoder = Decoder("shop", 1, Catalog())
    for payload in payloads:
        batch = decoder.feed([PayloadOffsets.from_messages([payload])])
    assert batch.position == position


def test_the_position_never_falls_below_the_start() -> None:
    assert decode(position=20).position == 20
    assert decode(keepalive(10), position=20).position == 20
    assert decode(begin(10), commit(10, 15), position=20).position == 20
    assert decode(keepalive(21), position=20).position == 21


def test_a_transaction_can_span_batches() -> None:
    decoder = Decoder("shop", 1, Catalog())
    feeds = [
        [begin(100, xid=5), T1, insert(1, "1", "a")],
        [update(1, "2", "b", key=["1", None])],
        [],
        [keepalive(500)],
        [truncate(1), insert(1, "3", "c"), commit(100, 108), begin(108, xid=6), insert(1, "4", "")],
        [commit(108, 120)],
    ]
    batches = [decoder.feed([PayloadOffsets.from_messages(feed)]) for feed in feeds]
    rows = [
        (row["commit_lsn"], row["commit_index"], row["xid"], row["op"]) for batch in batches for row in events(batch)
    ]
    assert rows == [
        (100, 0, 5, "insert"),
        (100, 1, 5, "delete"),
        (100, 2, 5, "update"),
        (100, 3, 5, "truncate"),
        (100, 4, 5, "insert"),
        (108, 0, 6, "insert"),
    ]
    assert [batch.position for batch in batches] == [None, None, None, None, 108, 120]
    assert [batch.in_transaction for batch in batches] == [True] * 5 + [False]
    assert [batch.transactions for batch in batches] == [0, 0, 0, 0, 1, 1]


def test_a_reply_request_of_the_server_is_recognised() -> None:
    assert not decode(keepalive(1)).reply_requested
    assert decode(keepalive(1), keepalive(2, reply=True), keepalive(3)).reply_requested


def test_logical_messages_take_no_ordinal_and_are_returned() -> None:
    batch = decode(
        *(logical_message("tidemark", b"before", 5, transactional=False), begin(100), T1),
        *(
            insert(1, "1", "a"),
            logical_message("tidemark", b"\0\xff", 90),
            ORIGIN,
            TYPE,
            insert(1, "2", "b"),
        ),
        *(commit(100), logical_message("", b"", 120, transactional=False)),
    )
    assert [row["commit_index"] for row in events(batch)] == [0, 1]
    assert [(m.prefix, m.content, m.lsn, m.transactional, m.commit_lsn) for m in batch.messages] == [
        ("tidemark", b"before", 5, False, None),
        ("tidemark", b"\0\xff", 90, True, 100),
        ("", b"", 120, False, None),
    ]


def test_payloads_can_be_in_several_buffers() -> None:
    sent = [begin(1), T1, insert(1, "1", "a"), insert(1, "2", "b"), commit(1)]
    apart = PayloadOffsets(bytearray(b"?" + b"??".join(sent) + bytes(PADDING)))
    for message in sent:
        apart.start.append(apart.end[-1] + 2 if apart.end else 1)
        apart.end.append(apart.start[-1] + len(message))
    batch = Decoder("shop", 1, Catalog()).feed(
        [apart, PayloadOffsets.from_messages([]), PayloadOffsets.from_messages(sent)]
    )
    assert (batch.events.num_rows, batch.transactions) == (4, 2)


# --- Errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("payloads", "message"),
    [
        ([xlog(b"S" + bytes(8))], "unknown replication message b'S'"),
        ([b"x" + bytes(40)], "unknown replication message"),
        ([begin(1), T1, insert(1, "1", BINARY)], "binary"),
        ([T1, insert(1, "1", "x")], "outside of a transaction"),
        ([commit(1)], "outside of a transaction"),
        ([begin(1), commit(1), truncate(1)], "outside of a transaction"),
        ([begin(1), begin(2)], "begin inside of one"),
        ([begin(1), insert(1, "1", "x")], "before its Relation message"),
        ([begin(1), T1, insert(2, "1", "x")], "before its Relation message"),
        ([begin(1), T1, truncate(2)], "before its Relation message"),
        ([begin(1), T1, insert(1, "1", "x", "y")], "damaged"),
        ([begin(1), T1, insert(1, "1", "x") + b"n"], "damaged"),
        ([begin(1), T1, insert(1, "1", "x").replace(b"t", b"z")], "damaged"),
        ([begin(1), T1, insert(1, "1", "x").replace(b"N", b"K")], "damaged"),
        ([begin(1), T1, update(1, "1", "x", key=["1", None]).replace(b"N", b"Q")], "damaged"),
        ([begin(1), T1, delete(1, key=["1", None]).replace(b"K", b"N")], "damaged"),
        ([begin(1), T1, update(1, TOAST, "x")], "change without key values"),
        ([begin(1), relation(1, "id v"), delete(1, key=["1", "x"])], "change without key values"),
        ([begin(1), T1, insert(1, "1", "x").replace(b"x", b"\xff")], "not valid UTF-8"),
    ],
)
def test_an_invalid_message_is_refused(payloads: list[bytes], message: str) -> None:
    with pytest.raises(Failure, match=message):
        decode(*payloads)


ONE_OF_EACH = [
    *(keepalive(1), begin(1), T1, insert(1, "1", "x"), update(1, "1", "y", key=["2", None])),
    *(delete(1, key=["1", None]), truncate(1), logical_message("p", b"c", 1), commit(1)),
]


@pytest.mark.parametrize("number", range(len(ONE_OF_EACH)))
def test_a_truncated_message_is_detected_at_any_length(number: int) -> None:
    before, message, after = ONE_OF_EACH[:number], ONE_OF_EACH[number], ONE_OF_EACH[number + 1 :]
    for length in range(len(message)):
        for rest in ([], after):
            with pytest.raises(Failure):
                decode(*before, message[:length], *rest)


@pytest.mark.parametrize(("table", "key"), [(T1, "v"), (T1, "id v"), (T1, ""), (COMPOSITE, "a"), (FULL, "gone")])
def test_a_key_of_another_generation_is_refused(table: bytes, key: str) -> None:
    with pytest.raises(Failure, match=r"public\.t.*resnapshot"):
        decode(table, catalog=Catalog(_1=key))


def test_an_error_has_the_position_of_its_message() -> None:
    with pytest.raises(Failure, match="shop, message at 1/00000002"):
        decode(begin(1), T1, insert(1, "1", BINARY, lsn=2**32 + 2))


def test_a_message_larger_than_a_batch_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_batch, "MESSAGE_BATCH_BYTES", 100)
    big = "x" * 1000
    batch = decode(*(begin(1), T1, insert(1, "1", big), insert(1, "2", "a"), insert(1, "3", big)), commit(1))
    assert [len(row["columns"]["v"]) for row in events(batch)] == [1000, 1, 1000]


def test_the_last_change_of_a_table_is_known_for_every_kind() -> None:
    decoder = Decoder("shop", 1, Catalog())
    truncated = [begin(100), relation(1, "*id"), truncate(1), commit(100)]
    decoder.feed([PayloadOffsets.from_messages([*truncated, begin(200), insert(1, "1"), commit(200)])])
    assert list(decoder.changed.values()) == [200]
