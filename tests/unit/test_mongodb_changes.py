"""The decoder of change stream events, fed with scripted ones."""

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from bson import Binary, encode
from bson.datetime_ms import DatetimeMS
from bson.timestamp import Timestamp

from ingest.change import EVENTS
from ingest.mongodb.changes import Decoder, Events, Namespace
from ingest.mongodb.documents import Parsed

ORDERS = uuid.UUID(int=1)


class Source:
    """A decoder, and what it asks and tells."""

    def __init__(self, now: Mapping[str, Parsed] | None = None) -> None:
        self.now = now or {}
        self.asked: list[tuple[Namespace, list[str]]] = []
        self.catalogue = 0
        self.decoder = Decoder("shop", 1, lambda name: name.startswith("shop."), self.look_up, self.told)

    def look_up(self, namespace: Namespace, keys: Sequence[str]) -> Mapping[str, Parsed]:
        self.asked.append((namespace, list(keys)))
        return self.now

    def told(self) -> None:
        self.catalogue += 1

    def feed(self, *events: dict[str, Any], token: tuple[int, int] | None = None) -> list[dict[str, Any]]:
        seconds, increment = token or (events[-1]["clusterTime"].time, events[-1]["clusterTime"].inc)
        batch = self.decoder.feed(Events([encode(e) for e in events], seconds << 32 | increment))
        assert batch.events.schema.equals(EVENTS)
        self.position, self.open = batch.position, batch.in_transaction
        return list(batch.events.to_pylist(maps_as_pydicts="strict"))


def event(kind: str, at: tuple[int, int], key: int = 1, collection: str = "shop.orders", **more: Any) -> dict[str, Any]:
    database, _, name = collection.partition(".")
    return {
        "operationType": kind,
        "clusterTime": Timestamp(*at),
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


def test_the_last_clustertime_may_grow_until_a_token_is_past_it() -> None:
    source = Source()
    source.feed(event("delete", (5, 1)))
    assert (source.position, source.open) == (5 << 32 | 1, True)
    source.feed(token=(5, 2))
    assert (source.position, source.open) == (5 << 32 | 2, False)


def test_updates_without_a_document_are_looked_up_at_once_and_those_that_are_gone_are_left_out() -> None:
    source = Source({'{"$numberInt":"1"}': {"_id": {"$numberInt": "1"}, "v": "now"}})
    found = source.feed(
        event("update", (5, 1), 1),
        event("update", (5, 2), 2),
        event("update", (5, 3), 3, fullDocument={"_id": 3, "v": "image"}),
        event("replace", (5, 4), 1, fullDocument={"_id": 1, "v": "whole"}),
        event("update", (5, 5), 1),
    )
    assert source.asked == [(("shop", "orders"), ['{"$numberInt":"1"}', '{"$numberInt":"2"}'])]
    assert [(r["commit_lsn"] & 0xFF, r["op"], r["columns"].get("v")) for r in found] == [
        (1, "update", '"now"'),
        (3, "update", '"image"'),
        (4, "update", '"whole"'),
        (5, "update", '"now"'),
    ]


def test_a_split_event_is_one_when_its_last_fragment_is_there() -> None:
    source = Source()
    whole = event("update", (5, 1), fullDocument={"_id": 1, "v": "x"})
    head = {name: whole[name] for name in ("operationType", "clusterTime", "ns")}
    rest = {name: whole[name] for name in ("collectionUUID", "documentKey", "fullDocument")}
    assert source.feed({**head, "splitEvent": {"fragment": 1, "of": 2}}, token=(5, 1)) == []
    (found,) = source.feed({**rest, "splitEvent": {"fragment": 2, "of": 2}}, token=(5, 1))
    assert (found["commit_index"], found["columns"]["v"]) == (0, '"x"')


def test_a_drop_and_a_rename_take_all_away_at_their_place_and_the_catalogue_is_looked_at() -> None:
    source = Source()
    found = source.feed(
        event("insert", (5, 1), fullDocument={"_id": 1}),
        event("drop", (5, 2)),
        event("create", (5, 3)),
        event("rename", (5, 4), collection="shop.other"),
    )
    assert [(r["op"], r["table_name"], r["row_key"], r["leaf_id"] is None) for r in found] == [
        ("insert", "shop.orders", '[{"$numberInt":"1"}]', False),
        ("truncate", "shop.orders", None, True),
        ("truncate", "shop.other", None, True),
    ]
    assert found[0]["table_id"] == found[1]["table_id"] != found[2]["table_id"]
    assert source.catalogue == 3


def test_a_collection_of_another_uuid_is_another_table() -> None:
    source = Source()
    first, second = source.feed(
        event("delete", (5, 1)), {**event("delete", (5, 2)), "collectionUUID": Binary(uuid.uuid4().bytes, 4)}
    )
    assert first["table_id"] != second["table_id"]


def test_heartbeats_system_collections_and_what_is_not_selected_are_counted_only() -> None:
    source = Source()
    found = source.feed(
        event("insert", (5, 1), collection="shop.tidemark_heartbeat", fullDocument={"_id": 1}),
        event("insert", (5, 1), collection="shop.system.views", fullDocument={"_id": 1}),
        event("insert", (5, 1), collection="else.orders", fullDocument={"_id": 1}),
        event("delete", (5, 1)),
    )
    assert [r["commit_index"] for r in found] == [3]


def test_times_and_transactions_are_kept() -> None:
    source = Source()
    plain, told = source.feed(event("delete", (5, 1)), event("delete", (5, 2), wallTime=DatetimeMS(5123), txnNumber=7))
    assert (plain["commit_ts"].timestamp(), plain["xid"]) == (5.0, None)
    assert (told["commit_ts"].timestamp(), told["xid"]) == (5.123, 7)


@pytest.mark.parametrize(("count", "sizes"), [(0, [0]), (1, [1]), (4, [4]), (5, [4, 1]), (8, [4, 4]), (9, [4, 4, 1])])
def test_a_reply_in_parts_proves_its_position_with_the_last(count: int, sizes: list[int]) -> None:
    reply = Events([bytes([n]) for n in range(count)], 7)
    parts = list(reply.parts(4))
    assert [len(part.raw) for part in parts] == sizes
    assert [raw for part in parts for raw in part.raw] == list(reply.raw)
    assert [part.position for part in parts] == [0] * (len(sizes) - 1) + [7]
