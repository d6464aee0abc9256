"""The decoder of change stream events, with scripted events."""

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from bson import Binary, encode
from bson.datetime_ms import DatetimeMS
from bson.timestamp import Timestamp

from ingest.common.errors import Failure
from ingest.common.records import EVENTS
from ingest.sources.mongodb.bson import document_keys, elements
from ingest.sources.mongodb.bson.elements import Value
from ingest.sources.mongodb.bson.vector_walk import LEAST
from ingest.sources.mongodb.change_stream.change_decoder import LOOKED_UP_BYTES, Decoder, Events
from ingest.sources.mongodb.change_stream.change_events import Namespace

ORDERS = uuid.UUID(int=1)


class Source:
    """A decoder with fakes of its inputs and outputs."""

    def __init__(self, now: Mapping[str, bytes] | None = None) -> None:
        self.now = now or {}
        self.asked: list[tuple[Namespace, list[Any], int]] = []
        self.catalog_polls = 0
        self.renamed: list[tuple[str, int]] = []
        self.batches: list[int] = []
        self.decoder = Decoder(
            "shop",
            1,
            lambda name: name.startswith("shop."),
            self.look_up,
            self.request_catalog_poll,
            lambda table_id, cluster_time: self.renamed.append((table_id, cluster_time & 0xFF)),
        )

    def look_up(
        self, namespace: Namespace, identifiers: Sequence[Value], cluster_time: int
    ) -> Mapping[str, bytes] | None:
        requested = elements.one_of(identifiers)["_id"]["$in"]
        self.asked.append((namespace, requested, cluster_time & 0xFF))
        documents = {key: self.now[key] for value in requested if (key := self.key_of(value)) in self.now}
        is_large = sum(map(len, documents.values())) > LOOKED_UP_BYTES and len(requested) > 1
        return None if is_large else documents

    @staticmethod
    def key_of(identifier: Any) -> str:
        return document_keys.row_key(elements.value(encode({"_id": identifier}), b"_id"))

    def request_catalog_poll(self) -> None:
        self.catalog_polls += 1

    def feed(self, *events: dict[str, Any], token: tuple[int, int] | None = None) -> list[dict[str, Any]]:
        seconds, increment = token or (events[-1]["clusterTime"].time, events[-1]["clusterTime"].inc)
        batches = list(self.decoder.feed(Events([encode(e) for e in events], seconds << 32 | increment)))
        assert all(batch.events.schema.equals(EVENTS) for batch in batches)
        assert all(batch.in_transaction for batch in batches[:-1])
        self.batches = [batch.events.num_rows for batch in batches]
        self.positions = [batch.position for batch in batches]
        self.open, self.token = batches[-1].in_transaction, batches[-1].token
        return [row for batch in batches for row in batch.events.to_pylist(maps_as_pydicts="strict")]


def key(number: int) -> str:
    return f'[{{"$numberInt":"{number}"}}]'


def large(number: int, size: int) -> bytes:
    return encode({"_id": number, "v": "x" * size})


def event(
    kind: str, cluster_time: tuple[int, int], key: int = 1, collection: str = "shop.orders", **more: Any
) -> dict[str, Any]:
    database, _, name = collection.partition(".")
    return {
        "_id": {"_data": f"token {kind} {cluster_time}"},
        "operationType": kind,
        "clusterTime": Timestamp(*cluster_time),
        "ns": {"db": database, "coll": name},
        "collectionUUID": Binary(ORDERS.bytes, 4),
        "documentKey": {"_id": key},
        **more,
    }


def test_ordinals_count_all_events_of_a_clustertime_over_replies() -> None:
    source = Source()
    first = source.feed(
        event("insert", (5, 1), fullDocument={"_id": 1}),
        event("insert", (5, 2), fullDocument={"_id": 1}),
        event("insert", (5, 2), collection="other.orders", fullDocument={"_id": 1}),
        event("insert", (5, 2), 2, fullDocument={"_id": 2}),
    )
    second = source.feed(event("delete", (5, 2), 3), event("delete", (5, 3), 4))
    assert [(r["commit_lsn"] & 0xFF, r["commit_index"], r["row_key"]) for r in first + second] == [
        (1, 0, '[{"$numberInt":"1"}]'),
        (2, 0, '[{"$numberInt":"1"}]'),
        (2, 2, '[{"$numberInt":"2"}]'),
        (2, 3, '[{"$numberInt":"3"}]'),
        (3, 0, '[{"$numberInt":"4"}]'),
    ]


def test_the_last_clustertime_is_open_until_a_token_is_past_it() -> None:
    source = Source()
    source.feed(event("delete", (5, 1)))
    assert (source.positions, source.open) == ([5 << 32 | 1], True)
    source.feed(token=(5, 2))
    assert (source.positions, source.open) == ([5 << 32 | 2], False)


def test_updates_without_a_document_are_looked_up_in_one_batch() -> None:
    source = Source({key(1): encode({"_id": 1, "v": "now"})})
    events = source.feed(
        event("update", (5, 1), 1),
        event("update", (5, 2), 2),
        event("update", (5, 3), 3, fullDocument={"_id": 3, "v": "image"}),
        event("replace", (5, 4), 1, fullDocument={"_id": 1, "v": "whole"}),
        event("update", (5, 5), 1),
    )
    assert source.asked == [(("shop", "orders"), [1, 2], 5)]
    assert [(r["commit_lsn"] & 0xFF, r["op"], r["columns"].get("v")) for r in events] == [
        (1, "update", '"now"'),
        (3, "update", '"image"'),
        (4, "update", '"whole"'),
        (5, "update", '"now"'),
    ]


def test_a_collection_name_can_be_invalid_utf8() -> None:
    source = Source()
    odd = event("insert", (5, 1), collection="shop.a__", fullDocument={"_id": 1})
    (batch,) = source.decoder.feed(Events([encode(odd).replace(b"__", b"\xff\xfe")], 5 << 32 | 1))
    assert batch.events["table_name"].to_pylist() == [r"shop.a\xff\xfe"]


def test_a_split_event_is_complete_with_its_last_fragment() -> None:
    source = Source()
    whole = event("update", (5, 1), fullDocument={"_id": 1, "v": "x"})
    head = {name: whole[name] for name in ("operationType", "clusterTime", "ns")}
    rest = {name: whole[name] for name in ("_id", "collectionUUID", "documentKey", "fullDocument")}
    assert source.feed({**head, "splitEvent": {"fragment": 1, "of": 2}}, token=(5, 1)) == []
    (split_event,) = source.feed({**rest, "splitEvent": {"fragment": 2, "of": 2}}, token=(5, 1))
    assert (split_event["commit_index"], split_event["columns"]["v"]) == (0, '"x"')


def test_drops_and_renames_truncate_in_order_and_poll_the_catalog() -> None:
    source = Source()
    events = source.feed(
        event("insert", (5, 1), fullDocument={"_id": 1}),
        event("drop", (5, 2)),
        event("create", (5, 3)),
        event("rename", (5, 4), collection="shop.other", to={"db": "elsewhere", "coll": "x"}),
    )
    assert [(r["op"], r["table_name"], r["row_key"], r["partition_id"] is None) for r in events] == [
        ("insert", "shop.orders", '[{"$numberInt":"1"}]', False),
        ("truncate", "shop.orders", None, True),
        ("truncate", "shop.other", None, True),
    ]
    assert events[0]["table_id"] == events[1]["table_id"] != events[2]["table_id"]
    assert source.catalog_polls == 3


def test_the_token_is_that_of_the_last_event_of_a_document() -> None:
    source = Source()
    source.feed(event("create", (5, 1)))
    assert source.token is None
    source.feed(event("delete", (5, 2)), event("drop", (5, 3)))
    assert source.token == "token delete (5, 2)"
    source.feed(token=(5, 4))
    assert source.token == "token delete (5, 2)"


def test_a_collection_of_another_uuid_is_another_table() -> None:
    source = Source()
    first, second = source.feed(
        event("delete", (5, 1)), {**event("delete", (5, 2)), "collectionUUID": Binary(uuid.uuid4().bytes, 4)}
    )
    assert first["table_id"] != second["table_id"]


def test_events_of_unselected_collections_are_only_counted() -> None:
    source = Source()
    events = source.feed(
        event("insert", (5, 1), collection="shop.tidemark_heartbeat", fullDocument={"_id": 1}),
        event("insert", (5, 1), collection="shop.system.views", fullDocument={"_id": 1}),
        event("insert", (5, 1), collection="else.orders", fullDocument={"_id": 1}),
        event("insert", (5, 1), collection="shop.tmp.agg_out.1", fullDocument={"_id": 1}),
        event("delete", (5, 1)),
    )
    assert [r["commit_index"] for r in events] == [4]


def test_times_and_transactions_are_kept() -> None:
    source = Source()
    plain, with_details = source.feed(
        event("delete", (5, 1)), event("delete", (5, 2), wallTime=DatetimeMS(5123), txnNumber=7)
    )
    assert (plain["commit_ts"].timestamp(), plain["xid"]) == (5.0, None)
    assert (with_details["commit_ts"].timestamp(), with_details["xid"]) == (5.123, 7)


def test_large_documents_take_several_batches_and_one_position() -> None:
    source = Source({key(n): large(n, LOOKED_UP_BYTES // 3 - 100) for n in range(1, 9)})
    source.feed(event("delete", (4, 9)))
    batches = source.feed(*(event("update", (5, n), n) for n in range(1, 9)))
    assert [row["row_key"] for row in batches] == [key(n) for n in range(1, 9)]
    assert max(source.batches) <= 3
    assert source.positions == [4 << 32 | 9] * (len(source.batches) - 1) + [5 << 32 | 8]


def test_a_large_document_changed_often_is_written_in_several_batches() -> None:
    source = Source({key(1): large(1, LOOKED_UP_BYTES)})
    assert len(source.feed(*(event("update", (5, n)) for n in range(1, 5)))) == 4
    assert source.batches == [1, 1, 1, 1]


def test_the_target_dropped_by_a_rename_is_a_truncate_with_an_ordinal() -> None:
    source = Source()
    dropped = Binary(uuid.UUID(int=2).bytes, 4)
    rename = event("rename", (5, 1), to={"db": "shop", "coll": "new"}, operationDescription={"dropTarget": dropped})
    events = source.feed(rename, event("delete", (5, 1), 7, collection="shop.new"))
    assert [(r["op"], r["table_name"], r["commit_index"]) for r in events] == [
        ("truncate", "shop.orders", 0),
        ("truncate", "shop.new", 1),
        ("delete", "shop.new", 2),
    ]
    assert source.renamed == [(events[2]["table_id"], 1)]
    assert events[1]["table_id"] not in (events[0]["table_id"], events[2]["table_id"])


def test_the_target_dropped_by_a_rename_takes_an_ordinal_if_unselected() -> None:
    source = Source()
    dropped = Binary(uuid.UUID(int=2).bytes, 4)
    rename = event(
        "rename",
        (5, 1),
        collection="other.orders",
        to={"db": "other", "coll": "new"},
        operationDescription={"dropTarget": dropped},
    )
    events = source.feed(rename, event("delete", (5, 1)))
    assert [r["commit_index"] for r in events] == [2]
    assert source.renamed == []


def test_the_drop_of_a_view_takes_an_ordinal_without_an_event() -> None:
    source = Source()
    drop = event("drop", (5, 1), collection="shop.view")
    del drop["collectionUUID"], drop["documentKey"]
    (insert,) = source.feed(drop, event("insert", (5, 1), fullDocument={"_id": 1}))
    assert (insert["op"], insert["commit_index"]) == ("insert", 1)


def broken_event(cluster_time: tuple[int, int], **changed: Any) -> bytes:
    """An event in which a string named `x` has an invalid type."""
    return encode(event("insert", cluster_time, **changed)).replace(b"\x02x\0", b"\x20x\0")


def test_an_undecodable_document_is_reported_by_id() -> None:
    source = Source()
    good = encode(event("insert", (5, 1), fullDocument={"_id": 1}))
    events = [good, broken_event((5, 2), key=7, fullDocument={"_id": 7, "x": "abc"})]
    with pytest.raises(Failure, match="can't be decoded") as failure:
        list(source.decoder.feed(Events(events, 5 << 32 | 2)))
    assert f"shop.orders {key(7)}, changed at" in failure.value.where


def test_an_undecodable_id_is_reported() -> None:
    events = [broken_event((5, 2), documentKey={"_id": {"x": "abc"}}, fullDocument={})]
    with pytest.raises(Failure, match="can't be decoded") as failure:
        list(Source().decoder.feed(Events(events, 5 << 32 | 2)))
    assert "shop.orders" in failure.value.where


def test_a_document_of_an_unselected_collection_is_not_decoded() -> None:
    events = [broken_event((5, 2), collection="other.orders", fullDocument={"_id": 7, "x": "abc"})]
    assert [batch.events.num_rows for batch in Source().decoder.feed(Events(events, 5 << 32 | 2))] == [0]


def test_events_are_decoded_alike_in_batches_of_any_size() -> None:
    """Large batches are decoded by vectors, small ones one by one."""
    kinds = ("insert", "update", "replace", "delete")
    expected = [
        event(kinds[n % 4], (5, 1 + n // 3), n % 40, fullDocument={"_id": n % 40, "v": n, "w": [n, {"x": "ä"}]})
        for n in range(4 * LEAST)
    ]
    at_once, one_by_one = Source(), Source()
    together = at_once.feed(*expected)
    assert [len({row["commit_index"] for row in together}), len(together)] == [3, len(expected)]
    apart = [row for each in expected for row in one_by_one.feed(each)]
    for row in (*together, *apart):
        del row["ingested_at"]
    assert together == apart
