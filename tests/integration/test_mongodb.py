"""Collections of a real replica set in the lake: change streams with concurrent snapshots, equal to the source."""

import json
import logging
import re
import shutil
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from bson import Binary, Code, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp, encode
from bson.datetime_ms import DatetimeMS
from bson.raw_bson import RawBSONDocument
from pydantic import ByteSize, SecretStr
from pymongo import MongoClient
from pymongo.database import Database
from pymongo.errors import OperationFailure
from pyspark.sql import SparkSession

from ingest.codegen.view_trial import ViewTrial
from ingest.commands.codegen import Codegen
from ingest.commands.verify import verify_tables
from ingest.common.errors import Failure
from ingest.config.job_settings import JobSettings
from ingest.config.sources_file import MongoSource, Settings
from ingest.devservers.embedded_servers import MongoServer
from ingest.lake import Lake
from ingest.lake.source_tables import DONE, ENDED, RUNNING
from ingest.snapshot.snapshotter import SnapshotHooks
from ingest.sources.mongodb import cluster_time, mongodb_connection, mongodb_server
from ingest.sources.mongodb.mongodb_checks import check
from ingest.sources.mongodb.mongodb_connection import SNAPSHOT_TOO_OLD, CannotConnect
from ingest.stream.batch_committer import CommitHooks
from tests.harness.kill_points import Killed, call_once, kill
from tests.harness.mongodb_jobs import Client, MongoJobs
from tests.harness.postgres_jobs import chunk_settings, done_chunks
from tests.harness.project_copy import ROOT
from tests.harness.waiting import wait_until

Shop = Database[dict[str, Any]]

ODD_IDS = [
    *(5, Int64(2**40), -1.5, float("nan"), float("inf"), Decimal128("7.10"), "", "a", "ä\u0000b", '"quoted"\\', True),
    *(
        ObjectId(),
        Timestamp(5, 6),
        datetime(2020, 1, 1, tzinfo=timezone.utc),
        {"a": 1, "b": "x"},
        {"b": "x", "a": 1},
        {},
        None,
    ),
    *(Binary(b"\x00\xff", 0), Binary(uuid.uuid4().bytes, 4), MinKey(), MaxKey(), DatetimeMS(-(2**60))),
]
VALUES = {
    "double": 0.1,
    "whole": 5.0,
    "minus_zero": -0.0,
    "large": 1e300,
    "nan": float("nan"),
    "infinite": float("-inf"),
    "int": -(2**31),
    "long": Int64(2**63 - 1),
    "decimal": Decimal128("-1.234567890123456789012345678901234E+6000"),
    "string": 'ä\u0000\u2028 "x" \\ /',
    "empty": "",
    "true": True,
    "null": None,
    "object_id": ObjectId("5f" * 12),
    "date": datetime(1, 1, 1, tzinfo=timezone.utc),
    "far_date": DatetimeMS(2**62),
    "timestamp": Timestamp(2**32 - 1, 2**32 - 1),
    "binary": Binary(b"\x00\x01\xff", 0),
    "uuid": Binary(uuid.UUID(int=5).bytes, 4),
    "own": Binary(b"x", 128),
    "regex": Regex("^a/b", "im"),
    "code": Code("f()"),
    "scoped": Code("f()", {"x": 1}),
    "min": MinKey(),
    "max": MaxKey(),
    "array": [1, "x", None, [Int64(1)], {"a": 0.5}],
    "document": {"b": {"c": [1.5, {}]}, "a": None},
    "": "nameless",
    "a.b": "dotted",
    "$x": "dollar",
    "row_key": "ours",
    "columns": {"_id": 1},
}


@pytest.fixture
def shop(mongo: Client, mongo_jobs: MongoJobs) -> Shop:
    """The source's database."""
    return mongo[mongo_jobs.source.name]


def connect(uri: str) -> Client:
    return MongoClient(uri)


def documented_privileges() -> list[dict[str, Any]]:
    """The privileges that docs/guides/mongodb.md lists, in the syntax of mongosh: its names have no quotes."""
    (listed,) = re.findall(r"privileges: (\[.*?\n +\])", (ROOT / "docs/guides/mongodb.md").read_text(), re.DOTALL)
    privileges: list[dict[str, Any]] = json.loads(re.sub(r"(\w+):", r'"\1":', listed))
    return privileges


def names(jobs: MongoJobs, *collections: str) -> list[str]:
    return [f"{jobs.source.name}.{collection}" for collection in collections]


def test_processes_started_at_once_start_at_one_position(mongo_jobs: MongoJobs) -> None:
    with ThreadPoolExecutor(4) as pool:
        positions = set(pool.map(lambda _: mongo_jobs.position(), range(4)))
    assert positions == set(mongo_jobs.lake.positions.read(mongo_jobs.source.name))
    assert len(positions) == 1


def test_changes_of_every_kind_during_a_snapshot_end_as_in_the_source(
    mongo: Client, mongo_jobs: MongoJobs, shop: Shop
) -> None:
    jobs = mongo_jobs
    shop.a.insert_many([{"_id": n, "v": n} for n in range(50)])
    jobs.open()

    def change() -> None:
        shop.a.update_one({"_id": 1}, {"$set": {"v": "new", "more": None}})
        shop.a.replace_one({"_id": 2}, {"other": 1.5})
        shop.a.update_one({"_id": 3}, {"$unset": {"v": ""}})
        shop.a.delete_one({"_id": 4})
        shop.a.delete_one({"_id": 5})
        shop.a.insert_one({"_id": 5, "v": "back"})
        shop.a.insert_one({"_id": "x", "v": 1})
        shop.a.delete_one({"_id": "x"})
        shop.a.insert_one({"_id": "y"})

    jobs.stream()
    with jobs.streaming():
        jobs.snapshot(SnapshotHooks(before_commit=call_once(change)))
    jobs.stream()
    jobs.assert_documents_equal(mongo, *names(jobs, "a"))


def test_a_document_deleted_before_its_chunk_is_committed_stays_deleted(
    mongo: Client, mongo_jobs: MongoJobs, shop: Shop
) -> None:
    jobs = mongo_jobs
    shop.a.insert_many([{"_id": n} for n in range(10)])
    jobs.open()

    def delete() -> None:
        shop.a.delete_many({"_id": {"$lt": 5}})
        jobs.stream()

    with jobs.streaming():
        pass
    snapshotter = jobs.snapshotter(SnapshotHooks(before_commit=call_once(delete)))
    snapshotter.run(until_done=True)
    jobs.stream()
    assert len(list(jobs.lake_documents(*names(jobs, "a")))) == 5
    jobs.assert_documents_equal(mongo, *names(jobs, "a"))


def test_a_transaction_over_collections_and_databases_is_atomic(
    mongo: Client, mongo_jobs: MongoJobs, shop: Shop
) -> None:
    jobs = mongo_jobs
    shop.a.insert_one({"_id": 0})
    shop.b.insert_one({"_id": 0})
    other_collection = mongo["elsewhere"].c
    other_collection.insert_one({"n": 0})
    jobs.settle()
    with mongo.start_session() as session, session.start_transaction():
        for n in range(1, 6):
            shop.a.insert_one({"_id": n}, session=session)
            other_collection.insert_one({"n": n}, session=session)
            shop.b.update_one({"_id": 0}, {"$set": {"n": n}}, session=session)
    jobs.stream()
    events = jobs.events()
    of_transaction = [e for e in events if e["commit_lsn"] == events[-1]["commit_lsn"]]
    # The other database's events take ordinals, although they are not stored.
    assert [e["commit_index"] for e in of_transaction] == [0, 2, 3, 5, 6, 8, 9, 11, 12, 14]
    assert len({e["xid"] for e in of_transaction}) == 1
    jobs.assert_documents_equal(mongo, *names(jobs, "a", "b"))


def test_a_half_committed_transaction_is_visible_once_and_complete(
    mongo: Client, mongo_jobs: MongoJobs, shop: Shop, settings: JobSettings
) -> None:
    jobs = mongo_jobs
    shop.a.insert_one({"_id": 0})
    jobs.settle()
    jobs.settings = settings.model_copy(update={"commit_max_bytes": ByteSize(1 << 20)})
    with mongo.start_session() as session, session.start_transaction():
        for n in range(1, 41):
            shop.a.insert_one({"_id": n, "text": str(n % 10) * 600_000}, session=session)
    before = len(jobs.events())
    with pytest.raises(Killed):
        jobs.stream(CommitHooks(before_store=kill))
    assert jobs.count_events() > before
    assert len(jobs.events()) == before
    jobs.stream()
    assert len(jobs.events()) == before + 40
    jobs.assert_documents_equal(mongo, *names(jobs, "a"))


def test_ids_of_all_types_are_chunked_without_loss(
    mongo: Client, mongo_jobs: MongoJobs, shop: Shop, settings: JobSettings
) -> None:
    jobs = mongo_jobs
    jobs.settings = chunk_settings(settings, 1 << 20, workers=2)
    text = "x" * 40_000
    shop.a.insert_many([{"_id": identifier, "text": text} for identifier in ODD_IDS])
    shop.a.insert_many([{"_id": n * 1.0 if n % 2 else Int64(n), "text": text} for n in range(100, 160)])
    shop.a.insert_many([{"_id": f"s{n}", "text": text} for n in range(60)])
    jobs.settle()
    table = jobs.table(*names(jobs, "a"))
    assert len(jobs.lake.chunks.read([str(table.snapshot_id)])) > 3
    jobs.assert_documents_equal(mongo, *names(jobs, "a"))
    for identifier in ODD_IDS:
        shop.a.update_one({"_id": identifier}, {"$set": {"text": "short"}})
    jobs.stream()
    jobs.assert_documents_equal(mongo, *names(jobs, "a"))
    shop.a.delete_many({})
    jobs.stream()
    assert not jobs.lake_documents(*names(jobs, "a"))


@pytest.mark.parametrize("images", [False, True])
def test_every_type_is_kept_in_canonical_form_by_snapshot_and_stream(
    mongo: Client, mongo_jobs: MongoJobs, shop: Shop, images: bool
) -> None:
    jobs = mongo_jobs
    shop.create_collection("a", changeStreamPreAndPostImages={"enabled": images})
    raw = RawBSONDocument(encode({"_id": 0, **VALUES}))
    shop.a.insert_one(raw)
    jobs.settle()
    jobs.assert_documents_equal(mongo, *names(jobs, "a"))
    shop.a.insert_one(RawBSONDocument(encode({"_id": 1, **VALUES})))
    shop.a.update_one({"_id": 0}, {"$set": {"updated": True}})
    jobs.stream()
    jobs.assert_documents_equal(mongo, *names(jobs, "a"))


@pytest.mark.parametrize("is_streamed", [False, True], ids=["snapshot", "stream"])
def test_a_document_that_drivers_cannot_decode_is_kept(
    mongo: Client, mongo_jobs: MongoJobs, shop: Shop, is_streamed: bool
) -> None:
    jobs = mongo_jobs
    texts = encode({"_id": 1, "text": "abcd"}).replace(b"abcd", b"a\xff\xfed")
    binary = encode({"_id": 2, "old": Binary(b"1234567", 0)}).replace(b"\x00" + b"1234567", b"\x02" + b"1234567")
    keys = [encode({"_id": "abcd", "v": 0}).replace(b"abcd", b"abc" + end) for end in (b"\xff", b"\xfe")]
    shop.a.insert_one({"_id": 0})
    if is_streamed:
        jobs.settle()
    shop.a.insert_many([RawBSONDocument(raw_document) for raw_document in (texts, binary, *keys)])
    if not is_streamed:
        jobs.settle()
    shop.a.update_many({}, {"$set": {"v": 1}})
    jobs.stream()
    documents = {dict(document)["_id"]: dict(document) for document in jobs.lake_documents(*names(jobs, "a"))}
    number_one = '{"$numberInt":"1"}'
    assert documents == {
        '{"$numberInt":"0"}': {"_id": '{"$numberInt":"0"}', "v": number_one},
        number_one: {"_id": number_one, "text": '"a\\\\xff\\\\xfed"', "v": number_one},
        '{"$numberInt":"2"}': {
            "_id": '{"$numberInt":"2"}',
            "old": '{"$binary":{"base64":"MTIzNDU2Nw==","subType":"00"}}',
            "v": number_one,
        },
        **{f'"abc\\\\x{end}"': {"_id": f'"abc\\\\x{end}"', "v": number_one} for end in ("ff", "fe")},
    }


def test_collections_with_unusual_names_or_first_documents_are_captured(
    mongo: Client, mongo_jobs: MongoJobs, shop: Shop
) -> None:
    jobs = mongo_jobs
    shop.far.insert_one({"_id": {"until": DatetimeMS(8_640_000_000_000_000)}})
    for command in ({"insert": "a..b", "documents": [{"_id": 0}]}, {"insert": "end.", "documents": [{"_id": 0}]}):
        shop.command(command)
    assert {finding.level for finding in check(jobs.source, jobs.settings)} == {"ok", "warning"}
    jobs.settle()
    create = encode({"op": "c", "ns": f"{shop.name}.$cmd", "o": {"create": "a__"}})
    insert = encode({"op": "i", "ns": f"{shop.name}.a__", "o": {"_id": 0}})
    no_utf8 = [RawBSONDocument(raw_document.replace(b"a__", b"a\xff\xfe")) for raw_document in (create, insert)]
    mongo.admin.command({"applyOps": no_utf8})
    for name in ("a..b", "end."):
        shop.command({"update": name, "updates": [{"q": {"_id": 0}, "u": {"$set": {"v": 1}}}]})
    jobs.stream()
    jobs.assert_documents_equal(mongo, *names(jobs, "far"))
    for name in names(jobs, "a..b", "end."):
        (document,) = jobs.lake_documents(name)
        assert dict(document)["v"] == '{"$numberInt":"1"}'
    (utf8_finding,) = [finding for finding in check(jobs.source, jobs.settings) if "UTF-8" in finding.what]
    assert r"a\xff\xfe" in utf8_finding.where


def test_views_and_time_series_do_not_affect_the_stream(mongo: Client, mongo_jobs: MongoJobs, shop: Shop) -> None:
    jobs = mongo_jobs
    shop.a.insert_one({"_id": 0})
    jobs.settle()
    for database in (shop, mongo[f"{jobs.source.name}_other"]):
        database.create_collection("view", viewOn="a", pipeline=[])
        database.create_collection("series", timeseries={"timeField": "t"})
        database.series.insert_one({"t": datetime.now(timezone.utc)})
        database.view.drop()
        database.series.drop()
    shop.a.insert_one({"_id": 1})
    jobs.stream()
    jobs.assert_documents_equal(mongo, *names(jobs, "a"))
    mongo.drop_database(f"{jobs.source.name}_other")


def test_an_update_whose_document_is_gone_at_lookup_adds_no_event(
    mongo: Client, mongo_jobs: MongoJobs, shop: Shop
) -> None:
    jobs = mongo_jobs
    shop.a.insert_many([{"_id": n, "v": 0} for n in range(3)])
    jobs.settle()
    shop.a.update_one({"_id": 0}, {"$set": {"v": 1}})
    shop.a.delete_one({"_id": 0})
    shop.a.update_one({"_id": 1}, {"$set": {"v": 1}})
    shop.a.delete_one({"_id": 1})
    shop.a.insert_one({"_id": 1, "v": "again"})
    before = len(jobs.events())
    jobs.stream()
    assert [(e["op"], e["row_key"]) for e in jobs.events()[before:]] == [
        ("delete", '[{"$numberInt":"0"}]'),
        ("update", '[{"$numberInt":"1"}]'),
        ("delete", '[{"$numberInt":"1"}]'),
        ("insert", '[{"$numberInt":"1"}]'),
    ]
    jobs.assert_documents_equal(mongo, *names(jobs, "a"))


def test_post_images_keep_every_version_of_a_document(mongo: Client, mongo_jobs: MongoJobs, shop: Shop) -> None:
    jobs = mongo_jobs
    shop.create_collection("a", changeStreamPreAndPostImages={"enabled": True})
    shop.a.insert_one({"_id": 0, "v": 0})
    jobs.settle()
    before = len(jobs.events())
    for version in range(1, 6):
        shop.a.update_one({"_id": 0}, {"$set": {"v": version}})
    shop.a.delete_one({"_id": 0})
    jobs.stream()
    versions = [dict(e["columns"]).get("v") for e in jobs.events()[before:]]
    assert versions == [*(f'{{"$numberInt":"{n}"}}' for n in range(1, 6)), None]


def test_a_recreated_collection_is_a_new_generation(mongo: Client, mongo_jobs: MongoJobs, shop: Shop) -> None:
    jobs = mongo_jobs
    shop.a.insert_many([{"_id": n} for n in range(5)])
    jobs.settle()
    before = jobs.table(*names(jobs, "a"))
    shop.a.drop()
    shop.a.insert_one({"_id": "new"})
    jobs.settle()
    assert jobs.table(*names(jobs, "a")).table_id != before.table_id
    assert jobs.lake.tables.read(jobs.source.name)[before.table_id].state == ENDED
    jobs.assert_documents_equal(mongo, *names(jobs, "a"))


def test_a_collection_dropped_while_queued_blocks_no_other(mongo: Client, mongo_jobs: MongoJobs, shop: Shop) -> None:
    jobs = mongo_jobs
    shop.a.insert_one({"_id": 0})
    shop.b.insert_one({"_id": 0})
    jobs.open()

    def drop() -> None:
        shop.a.drop()
        shop.a.insert_one({"_id": 1})

    with jobs.streaming():
        jobs.snapshot(SnapshotHooks(after_claim=call_once(drop)))
    jobs.settle()
    jobs.assert_documents_equal(mongo, *names(jobs, "a", "b"))


def test_a_renamed_collection_continues_under_its_new_name(mongo: Client, mongo_jobs: MongoJobs, shop: Shop) -> None:
    jobs = mongo_jobs
    shop.a.insert_many([{"_id": n} for n in range(5)])
    shop.c.insert_one({"_id": "gone"})
    jobs.settle()
    shop.a.rename("b")
    shop.b.insert_one({"_id": 9})
    shop.b.rename("c", dropTarget=True)
    jobs.settle()
    jobs.assert_documents_equal(mongo, *names(jobs, "c"))
    live = [t.table_name for t in jobs.lake.tables.read(jobs.source.name).values() if t.state != ENDED]
    assert live == names(jobs, "c")


def test_a_collection_renamed_back_and_forth_is_read_again(mongo: Client, mongo_jobs: MongoJobs, shop: Shop) -> None:
    jobs = mongo_jobs
    shop.a.insert_many([{"_id": n} for n in range(5)])
    jobs.settle()
    before = jobs.table(*names(jobs, "a"))
    shop.a.rename("b")
    shop.b.rename("a")
    shop.a.insert_one({"_id": 9})
    jobs.settle()  # the stream reads all of it before the next catalog poll
    after = jobs.table(*names(jobs, "a"))
    assert after.table_id == before.table_id
    assert after.snapshot_id != before.snapshot_id
    jobs.assert_documents_equal(mongo, *names(jobs, "a"))


def test_a_collection_renamed_and_back_after_its_snapshot_was_planned_is_planned_again(
    mongo: Client, mongo_jobs: MongoJobs, shop: Shop
) -> None:
    jobs = mongo_jobs
    shop.a.insert_many([{"_id": n} for n in range(5)])
    jobs.stream()

    def rename() -> None:
        shop.a.rename("b")
        shop.b.rename("a")
        jobs.stream()

    jobs.snapshot(SnapshotHooks(after_plan=call_once(rename)))
    jobs.settle()
    jobs.assert_documents_equal(mongo, *names(jobs, "a"))


def test_a_far_date_in_a_view_or_validator_stops_nothing(mongo: Client, mongo_jobs: MongoJobs, shop: Shop) -> None:
    jobs = mongo_jobs
    far = DatetimeMS(2**62)
    shop.create_collection("a", validator={"until": {"$lt": far}})
    shop.command("create", "v", viewOn="a", pipeline=[{"$match": {"until": far}}])
    shop.a.insert_one({"_id": 1, "until": datetime(2026, 1, 1, tzinfo=timezone.utc)})
    jobs.settle()
    jobs.assert_documents_equal(mongo, *names(jobs, "a"))
    assert not [finding for finding in check(jobs.source, jobs.settings) if finding.level == "error"]


def test_an_unanswered_dns_query_is_no_wrong_configuration() -> None:
    with pytest.raises(CannotConnect, match="DNS does not resolve the host"):
        mongodb_connection.connect("mongodb+srv://user:secret@cluster0.invalid/", 0.2)


def test_a_deselected_collection_returns_with_a_new_snapshot(mongo: Client, mongo_jobs: MongoJobs, shop: Shop) -> None:
    jobs = mongo_jobs
    everything = jobs.source
    shop.a.insert_one({"_id": 0})
    shop.b.insert_one({"_id": 0})
    jobs.settle()
    jobs.source = everything.model_copy(update={"collections": tuple(names(jobs, "b"))})
    jobs.settle()
    live = [t.table_name for t in jobs.lake.tables.read(jobs.source.name).values() if t.state != ENDED]
    assert live == names(jobs, "b")
    shop.a.insert_one({"_id": 1})
    shop.a.delete_one({"_id": 0})
    jobs.stream()
    jobs.source = everything
    jobs.settle()
    jobs.assert_documents_equal(mongo, *names(jobs, "a", "b"))


def test_an_equal_id_of_another_type_is_the_same_document(mongo: Client, mongo_jobs: MongoJobs, shop: Shop) -> None:
    jobs = mongo_jobs
    shop.a.insert_many([{"_id": Int64(1), "v": 0}, {"_id": 2.0, "v": 0}, {"_id": {"n": Int64(3)}, "v": 0}])
    jobs.settle()
    for identifier in (1, 2, {"n": 3}):
        shop.a.replace_one({"_id": identifier}, {"_id": identifier, "v": 1})
    shop.a.update_one({"_id": 2}, {"$set": {"v": 2}})
    jobs.stream()
    jobs.assert_documents_equal(mongo, *names(jobs, "a"))
    shop.a.delete_many({})
    jobs.stream()
    assert not jobs.lake_documents(*names(jobs, "a"))


def test_post_images_can_be_turned_on_and_off_during_the_stream(
    mongo: Client, mongo_jobs: MongoJobs, shop: Shop
) -> None:
    jobs = mongo_jobs
    shop.a.insert_one({"_id": 0, "v": 0})
    jobs.settle()
    with jobs.streaming():
        for version in range(1, 9):
            images = {"enabled": version % 4 < 2}
            shop.command("collMod", "a", changeStreamPreAndPostImages=images)
            shop.a.update_one({"_id": 0}, {"$set": {"v": version}})
            shop.a.insert_one({"_id": version})
    jobs.stream()
    jobs.assert_documents_equal(mongo, *names(jobs, "a"))


def test_documents_of_the_maximum_size_are_captured(mongo: Client, mongo_jobs: MongoJobs, shop: Shop) -> None:
    jobs = mongo_jobs
    room = 16 * 1024 * 1024 - len(encode({"_id": 0, "text": ""}))
    shop.a.insert_one({"_id": 0, "text": "s" * room})
    jobs.settle()
    shop.a.insert_one({"_id": 1, "text": "i" * room})
    shop.a.update_one({"_id": 0}, {"$set": {"text": "u" * room}})
    jobs.stream()
    jobs.assert_documents_equal(mongo, *names(jobs, "a"))


def test_an_update_of_a_large_field_has_its_post_image(mongo: Client, mongo_jobs: MongoJobs, shop: Shop) -> None:
    jobs = mongo_jobs
    shop.create_collection("a", changeStreamPreAndPostImages={"enabled": True})
    shop.a.insert_one({"_id": 0, "text": "x" * 9_000_000})
    jobs.settle()
    # The change and the post-image together are larger than 16 MB.
    shop.a.update_one({"_id": 0}, {"$set": {"text": "y" * 9_000_000}})
    jobs.stream()
    jobs.assert_documents_equal(mongo, *names(jobs, "a"))


def test_after_an_event_too_large_for_the_server_a_snapshot_recovers(
    mongo: Client, mongo_jobs: MongoJobs, shop: Shop
) -> None:
    jobs = mongo_jobs
    shop.a.insert_one({"_id": 0})
    jobs.settle()
    shop.a.insert_one({"_id": "x" * 5_000_000})  # An event has it in its key, its document, and twice in its token.
    with pytest.raises(Failure, match=r"an event is larger than 16 MB.*resnapshot --all"):
        jobs.stream()
    with pytest.raises(Failure) as again:
        jobs.stream()
    assert f"after {cluster_time.format_position(jobs.position().position)}" in str(again.value)
    jobs.resnapshot()
    jobs.settle()
    jobs.assert_documents_equal(mongo, *names(jobs, "a"))


def test_chunks_left_after_the_history_window_are_read_at_a_later_time(
    mongo: Client, mongo_jobs: MongoJobs, shop: Shop, settings: JobSettings
) -> None:
    jobs = mongo_jobs
    jobs.settings = chunk_settings(settings, 1 << 20)
    shop.a.insert_many([{"_id": n, "text": "x" * 40_000} for n in range(150)])
    jobs.open()
    window = mongo.admin.command({"getParameter": 1, "minSnapshotHistoryWindowInSeconds": 1})

    def end_history() -> None:
        mongo.admin.command({"setParameter": 1, "minSnapshotHistoryWindowInSeconds": 0})
        timestamp = cluster_time.to_timestamp(jobs.table(*names(jobs, "a")).snapshot_lsn or 0)
        shop.a.update_one({"_id": 1}, {"$set": {"text": "new"}})
        shop.a.delete_one({"_id": 149})
        is_there = True
        while is_there:
            shop.b.insert_one({})
            try:
                shop.command({"find": "a", "readConcern": {"level": "snapshot", "atClusterTime": timestamp}})
            except OperationFailure as error:
                is_there = error.code not in SNAPSHOT_TOO_OLD

    try:
        jobs.snapshot(SnapshotHooks(after_commit=call_once(end_history)))
    finally:
        old = window["minSnapshotHistoryWindowInSeconds"]
        mongo.admin.command({"setParameter": 1, "minSnapshotHistoryWindowInSeconds": old})
    # Documents have no partial updates, so the snapshot does not wait for the stream, which may be paused.
    assert jobs.table(*names(jobs, "a")).state == DONE
    jobs.stream()
    table = jobs.table(*names(jobs, "a"))
    assert len({chunk.read_lsn for chunk in jobs.lake.chunks.read([str(table.snapshot_id)])}) > 1
    jobs.assert_documents_equal(mongo, *names(jobs, "a"))


def test_no_chunk_is_read_before_the_snapshot_time_of_its_collection(
    mongo: Client, mongo_jobs: MongoJobs, shop: Shop, settings: JobSettings
) -> None:
    """One process begins a snapshot; another process, which reads at an older time, continues it."""
    jobs = mongo_jobs
    jobs.settings = chunk_settings(settings, 1 << 20, chunk_lease_seconds=0.5)
    shop.a.insert_many([{"_id": n, "text": "x" * 40_000} for n in range(100)])
    shop.late.insert_many([{"_id": 1, "v": "old"}, {"_id": 2, "v": "gone"}])
    jobs.open()

    def restart_snapshot() -> None:
        shop.late.update_one({"_id": 1}, {"$set": {"v": "new"}})
        shop.late.delete_one({"_id": 2})
        jobs.queue(*names(jobs, "late"))
        with pytest.raises(Killed):
            MongoJobs(jobs.lake, jobs.source, jobs.settings).snapshot(SnapshotHooks(after_claim=kill))
        assert jobs.table(*names(jobs, "late")).state == RUNNING

    with jobs.streaming():
        jobs.snapshot(SnapshotHooks(after_commit=call_once(restart_snapshot)))
    jobs.stream()
    jobs.assert_documents_equal(mongo, *names(jobs, "a", "late"))


def test_a_collection_skipped_by_the_stream_is_read_again(mongo: Client, mongo_jobs: MongoJobs, shop: Shop) -> None:
    jobs = mongo_jobs
    everything, only_b = jobs.source, jobs.source.model_copy(update={"collections": tuple(names(jobs, "b"))})
    shop.a.insert_one({"_id": 0})
    shop.b.insert_one({"_id": 0})
    jobs.settle()
    shop.b.insert_one({"_id": 1})
    jobs.stream()
    kept = jobs.table(*names(jobs, "b")).snapshot_id
    # Only the stream's selection shrinks and grows again: no catalog poll in between.
    jobs.source = only_b
    shop.a.delete_one({"_id": 0})
    shop.b.insert_one({"_id": 2})
    jobs.stream()
    jobs.source = everything
    shop.a.insert_one({"_id": 1})
    jobs.settle()
    jobs.assert_documents_equal(mongo, *names(jobs, "a", "b"))
    assert jobs.table(*names(jobs, "b")).snapshot_id == kept, "a collection that was always selected is not read again"


def test_a_process_with_an_outdated_sources_file_is_refused(
    mongo: Client, mongo_jobs: MongoJobs, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ingest.lake.lake.HOUSEKEEPING_POSITIONS", 1)
    jobs = mongo_jobs
    everything, only_b = jobs.source, jobs.source.model_copy(update={"collections": tuple(names(jobs, "b"))})
    jobs.source = only_b
    shop.b.insert_one({"_id": 0})
    jobs.settle()
    shop.b.insert_one({"_id": 1})
    jobs.stream()
    stream, snapshotter = jobs.writer(), jobs.snapshotter()
    # Another process is started with more collections.
    jobs.source = everything
    shop.a.insert_one({"_id": 0})
    jobs.snapshotter().run(until_done=True)
    shop.a.delete_one({"_id": 0})
    shop.a.insert_one({"_id": 1})
    with pytest.raises(Failure, match="another process has reset this stream"):
        stream.run(until=jobs.emit_marker())
    with pytest.raises(Failure, match="another process streams"):
        snapshotter.run(until_done=True)
    jobs.settle()
    jobs.assert_documents_equal(mongo, *names(jobs, "a", "b"))


def test_unsupported_collections_are_reported_and_block_no_others(
    mongo: Client,
    new_mongo_source: Callable[..., MongoSource],
    lake: Lake,
    settings: JobSettings,
    caplog: pytest.LogCaptureFixture,
) -> None:
    database = f"d{uuid.uuid4().hex[:8]}"
    source = new_mongo_source(collections=(f"{database}.*", f"{database}.missing"))
    shop = mongo[database]
    shop.a.insert_one({"_id": 0})
    shop.create_collection("capped", capped=True, size=4096)
    shop.create_collection("view", viewOn="a", pipeline=[])
    shop.create_collection("series", timeseries={"timeField": "t"})
    jobs = MongoJobs(lake, source, settings)
    with caplog.at_level(logging.ERROR):
        jobs.settle()
    for name in ("capped", "view", "series", "missing"):
        assert f"{database}.{name} is left out" in caplog.text
    jobs.assert_documents_equal(mongo, f"{database}.a")
    assert [t.table_name for t in lake.tables.read(source.name).values()] == [f"{database}.a"]
    findings = [(f.level, f.what) for f in check(source, settings)]
    (error,) = [finding for finding in check(source, settings) if finding.level == "error"]
    assert error.what == "it will be left out: it does not exist"
    assert error.where.endswith(f", collection {database}.missing")
    for kind, name in (("view", "view"), ("time series", "series"), ("capped collection", "capped")):
        assert ("ok", f"1 {kind} left out: {database}.{name}") in findings
    assert ("ok", "1 of 2 collections can be replicated") in findings
    assert any(level == "warning" and "post-images" in message for level, message in findings)
    named = source.model_copy(update={"collections": (f"{database}.view", f"{database}.capped", f"{database}.a")})
    wrong = sorted(f.where.partition(", ")[2] for f in check(named, settings) if f.level == "error")
    assert wrong == [f"collection {database}.{name}" for name in ("capped", "view")]
    mongo.drop_database(database)


def test_a_resumed_snapshot_reads_no_chunk_again(
    mongo: Client, mongo_jobs: MongoJobs, shop: Shop, settings: JobSettings
) -> None:
    jobs = mongo_jobs
    jobs.settings = chunk_settings(settings, 1 << 20, chunk_lease_seconds=0.5)
    shop.a.insert_many([{"_id": n, "text": "x" * 40_000} for n in range(150)])
    jobs.open()
    commits: list[object] = []

    def kill_third(chunks: object) -> None:
        commits.append(chunks)
        if len(commits) == 3:
            raise Killed

    with pytest.raises(Killed):
        jobs.snapshot(SnapshotHooks(after_commit=kill_third))
    before = done_chunks(jobs.lake, jobs.source.name)
    assert before
    shop.a.update_one({"_id": 1}, {"$set": {"text": "new"}})
    shop.a.delete_one({"_id": 2})
    shop.a.delete_one({"_id": 149})
    shop.a.insert_one({"_id": 149, "text": "again"})
    jobs.settle()
    assert before.items() <= done_chunks(jobs.lake, jobs.source.name).items()
    jobs.assert_documents_equal(mongo, *names(jobs, "a"))


def test_the_stream_continues_after_a_killed_cursor(mongo: Client, mongo_jobs: MongoJobs, shop: Shop) -> None:
    jobs = mongo_jobs
    shop.a.insert_one({"_id": 0})
    jobs.settle()
    before = len(jobs.events())
    with jobs.streaming():
        for n in range(1, 4):
            cursors = mongo.admin.aggregate(
                [{"$currentOp": {"idleCursors": True, "allUsers": True}}, {"$match": {"appName": "tidemark"}}]
            )
            for cursor in [c for c in cursors if c.get("cursor")]:
                mongo.admin.command("killCursors", "$cmd.aggregate", cursors=[cursor["cursor"]["cursorId"]])
            shop.a.insert_one({"_id": n})
    jobs.stream()
    assert len(jobs.events()) == before + 3
    jobs.assert_documents_equal(mongo, *names(jobs, "a"))


def test_another_deployment_or_one_set_back_in_time_is_refused(mongo_jobs: MongoJobs, shop: Shop) -> None:
    jobs = mongo_jobs
    shop.a.insert_one({"_id": 0})
    jobs.settle()
    position = jobs.position()
    ahead = type(position)(**{**position.__dict__, "position": position.position + (10_000 << 32)})
    other = type(position)(**{**ahead.__dict__, "system_id": "another", "start_position": position.start_position + 1})
    jobs.lake.positions.store(ahead)
    with pytest.raises(Failure, match="restored to an earlier point in time"):
        jobs.stream()
    jobs.lake.positions.store(other)
    with pytest.raises(Failure, match="another deployment"):
        jobs.stream()
    tables = jobs.lake.tables.read(jobs.source.name)
    with pytest.raises(Failure, match="another deployment"):
        list(verify_tables(jobs.lake, Settings(sources={jobs.source.name: jobs.source}, settings=jobs.settings), 1))
    assert jobs.lake.tables.read(jobs.source.name) == tables


def test_a_stream_that_another_process_reset_ends(
    mongo_jobs: MongoJobs, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ingest.lake.lake.HOUSEKEEPING_POSITIONS", 1)
    jobs = mongo_jobs
    shop.a.insert_one({"_id": 0})
    jobs.settle()
    writer = jobs.writer()
    jobs.resnapshot()
    shop.a.insert_one({"_id": 1})
    with pytest.raises(Failure, match="another process has reset this stream"):
        writer.run(until=jobs.emit_marker())


def jobs_of(server: MongoServer, lake: Lake, settings: JobSettings) -> MongoJobs:
    """The jobs of a source of the server's database `shop`."""
    name = f"m{uuid.uuid4().hex[:12]}"
    return MongoJobs(lake, MongoSource(name=name, uri=SecretStr(server.uri), collections=("shop.*",)), settings)


def restore(server: MongoServer, backup: Path) -> None:
    """Replaces the files of a stopped server."""
    shutil.rmtree(server.folder)
    shutil.copytree(backup, server.folder)


def test_a_restarted_server_is_resumed_and_a_restored_one_refused(
    lake: Lake, settings: JobSettings, tmp_path: Path
) -> None:
    server = MongoServer(tmp_path / "mongodb")
    jobs = jobs_of(server, lake, settings)
    with server, connect(server.uri) as client:
        client.shop.a.insert_one({"_id": 0})
        jobs.settle()
    shutil.copytree(server.folder, tmp_path / "backup")
    with server, connect(server.uri) as client:
        with jobs.streaming():
            client.shop.a.insert_one({"_id": 1})
            server.stop()
            server.start()
            client.shop.a.insert_one({"_id": 2})
        jobs.stream()
        jobs.assert_documents_equal(client, "shop.a")
    restore(server, tmp_path / "backup")
    with server, connect(server.uri) as client:
        client.shop.a.insert_one({"_id": 3})
        with pytest.raises(Failure, match="an event that was read .* no longer exists on the server"):
            jobs.stream()


def test_a_deployment_that_is_restored_while_its_stream_runs_is_refused(
    lake: Lake, settings: JobSettings, tmp_path: Path
) -> None:
    """The stream resumes after a token that is no event's, so the server does not look for it."""
    server = MongoServer(tmp_path / "mongodb")
    jobs = jobs_of(server, lake, settings)
    with server, connect(server.uri) as client:
        client.shop.a.insert_one({"_id": 0})
        jobs.settle()
    shutil.copytree(server.folder, tmp_path / "backup")
    with server, ThreadPoolExecutor(1) as pool:
        writer = jobs.writer()
        stream = pool.submit(writer.run)
        with connect(server.uri) as client:
            client.shop.a.insert_one({"_id": 1})
            client.admin.unseen.insert_one({})  # no change stream has it
            written = mongodb_server.operation_time(client)
        wait_until(lambda: max(position.position for position in lake.positions.read(jobs.source.name)) >= written)
        server.stop()
        restore(server, tmp_path / "backup")
        server.start()
        with pytest.raises(Failure, match="an event that was read .* no longer exists on the server"):
            stream.result(120)


def test_lost_history_is_reported_and_a_new_snapshot_recovers(
    lake: Lake, settings: JobSettings, tmp_path: Path
) -> None:
    # mongod removes old oplog entries only up to its last checkpoint: here it makes one each second.
    with MongoServer(tmp_path / "mongodb", {"--oplogSize": "1", "--syncdelay": "1"}) as server:
        client = connect(server.uri)
        jobs = jobs_of(server, lake, settings)
        client.shop.a.insert_one({"_id": 0})
        jobs.settle()
        position = cluster_time.to_timestamp(jobs.position().position)
        while client.local["oplog.rs"].find_one({"ts": {"$lte": position}}):
            client.shop.a.insert_many([{"text": "x" * 1_000_000} for _ in range(20)])
        with pytest.raises(Failure, match="no longer has its log.*resnapshot --all"):
            jobs.stream()
        client.shop.a.delete_many({"text": {"$exists": True}})
        jobs.resnapshot()
        jobs.settle()
        jobs.assert_documents_equal(client, "shop.a")
        client.close()


def test_the_least_privileged_role_of_the_docs_is_enough(lake: Lake, settings: JobSettings, tmp_path: Path) -> None:
    name = f"m{uuid.uuid4().hex[:12]}"
    with MongoServer(tmp_path / "mongodb") as server, connect(server.uri) as client:
        client.shop.a.insert_one({"_id": 0})
        client.admin.command("createUser", "root", pwd="r", roles=["root"])
        client.admin.command("createRole", "tidemark", privileges=documented_privileges(), roles=[])
        client.admin.command("createUser", "tidemark", pwd="secret", roles=["tidemark"])
        client.admin.command("createUser", "reader", pwd="secret", roles=[{"role": "read", "db": "shop"}])
    key = tmp_path / "key"
    key.write_text("k" * 64)
    key.chmod(0o400)
    # A reader that can't write the heartbeat waits for the server's no-op: one each second.
    options = {"--keyFile": str(key), "--setParameter": "periodicNoopIntervalSecs=1"}
    with MongoServer(tmp_path / "mongodb", options) as server:

        def source(user: str, *collections: str) -> MongoSource:
            uri = SecretStr(server.uri.replace("mongodb://", f"mongodb://{user}@"))
            return MongoSource(name=name, uri=uri, collections=collections)

        jobs = MongoJobs(lake, source("tidemark:secret", "shop.*"), settings)
        assert {f.level for f in check(jobs.source, settings)} == {"ok", "warning"}
        with connect(server.uri.replace("mongodb://", "mongodb://root:r@")) as root:
            jobs.settle()
            root.shop.a.update_one({"_id": 0}, {"$set": {"v": 1}})
            root.shop.a.insert_one({"_id": 1})
            jobs.stream()
            jobs.assert_documents_equal(root, "shop.a")
            # The stream of a single database is another one, so all collections are read once more.
            jobs.source = source("reader:secret", "shop.*")
            root.shop.a.insert_one({"_id": 2})
            jobs.settle()
            jobs.assert_documents_equal(root, "shop.a")
            assert jobs.position().slot == 'shop ["shop.*"]'
            # A dropped database ends its stream; the next stream starts after the drop.
            root.drop_database("shop")
            root.shop.a.insert_one({"_id": 3})
            jobs.settle()
            jobs.assert_documents_equal(root, "shop.a")
        (*_, finding) = check(source("reader:secret", "shop.*", "other.*"), settings)
        assert "in several databases" in str(finding)
        (finding,) = check(source("reader:wrong", "shop.*"), settings)
        assert "rejects the login" in str(finding)
        assert "wrong" not in str(finding)


def test_a_wrong_address_is_a_one_line_error_without_the_password(settings: JobSettings) -> None:
    source = MongoSource(name="m", uri=SecretStr("mongodb://me:secret@127.0.0.1:1/?replicaSet=x"), collections=("a.*",))
    (finding,) = check(source, settings.model_copy(update={"connect_timeout_seconds": 0.3}))
    assert finding.level == "error"
    assert "127.0.0.1:1" in str(finding)
    assert "secret" not in str(finding)
    assert issubclass(CannotConnect, Failure)


def test_codegen_infers_types_from_a_sample_and_keeps_edited_files(
    spark: SparkSession, mongo: Client, mongo_jobs: MongoJobs, shop: Shop, settings: JobSettings, tmp_path: Path
) -> None:
    same = {"at": datetime.now(timezone.utc), "who": {"name": "x", "n": {"z": 1}}, "tags": ["a"]}
    for n in range(20):
        shop.orders.insert_one({"_id": n, **same, "total": n * 1.5 if n % 2 else n, "mixed": n if n % 2 else "s"})
    codegen = Codegen(ViewTrial(lambda: spark).try_view, tmp_path)
    lines = codegen.write(mongo_jobs.source, settings).lines
    assert lines[-1].endswith("1 collections, 0 files unchanged")
    text = (tmp_path / f"stg_{mongo_jobs.source.name}__orders.sql").read_text()
    for item in (
        "{{ tidemark.bson_long(tidemark.field('_id')) }} as _id",
        "{{ tidemark.bson_double(tidemark.field('total')) }} as total",
        "{{ tidemark.bson_date(tidemark.field('at')) }} as at",
        "{{ tidemark.field('who', 'name') }} as who_name",
        "{{ tidemark.bson_long(tidemark.field('who', 'n', 'z')) }} as who_n_z",
        "{{ tidemark.bson_text(tidemark.field('tags')) }} as tags",
        "{{ tidemark.bson_text(tidemark.field('mixed')) }} as mixed",
    ):
        assert item in text, text
    assert codegen.write(mongo_jobs.source, settings).lines[-1].endswith("2 files unchanged")


def test_spark_accepts_the_view_of_a_document_with_a_hundred_levels(
    spark: SparkSession, mongo: Client, mongo_jobs: MongoJobs, shop: Shop, settings: JobSettings, tmp_path: Path
) -> None:
    document: dict[str, Any] = {"n": Int64(1), "when": datetime.now(timezone.utc)}
    for level in range(96):
        document = {"inner": document, "level": level, "at": datetime.now(timezone.utc)}
    shop.deep.insert_one({"_id": 1, **document})
    done = Codegen(ViewTrial(lambda: spark).try_view, tmp_path).write(mongo_jobs.source, settings)
    assert not done.refused
    text = (tmp_path / f"stg_{mongo_jobs.source.name}__deep.sql").read_text()
    rest = "_".join(["inner"] * 32)
    assert text.count(" as inner_") == 63
    assert f" as {rest},\n" in text
