"""Similar `_id`s: each document is one row, by snapshot and by stream, as long as it exists."""

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import pytest
from bson.raw_bson import RawBSONDocument
from pymongo.collection import Collection
from pymongo.errors import DuplicateKeyError, WriteError

from ingest.config.job_settings import JobSettings
from ingest.sources.mongodb.bson import document_keys, elements
from ingest.sources.mongodb.bson.elements import Value
from tests.harness.mongodb_jobs import Client, MongoJobs
from tests.harness.postgres_jobs import chunk_settings
from tests.unit.mongo_ids import GROUPS, text, value

# Enough documents for several chunks of a megabyte.
_FILLING = text(b"x" * 25_000)


def _insert(client: Client, collection: Collection[dict[str, Any]], identifier: Value, number: int) -> None:
    """Inserts as a driver does; values that the server no longer accepts from drivers are written as in an older
    server's oplog.
    """
    document = RawBSONDocument(elements.document([(b"_id", identifier), (b"n", value(number)), (b"t", _FILLING)]))
    try:
        collection.insert_one(document)
    except WriteError as error:
        if isinstance(error, DuplicateKeyError):
            raise
        entry = {"op": "i", "ns": collection.full_name, "o": document}
        client.admin.command({"applyOps": [entry]})


def _assert_same(jobs: MongoJobs, collection: Collection[dict[str, Any]], ids: Iterable[Value]) -> None:
    """Each document is one row, with its number and key; no other rows exist."""
    numbers = sorted(source_document["n"] for source_document in collection.find({}, {"_id": 0, "n": 1, "v": 1}))
    rows = [dict(document) for document in jobs.lake_documents(collection.full_name)]
    assert sorted(str(row["n"]) for row in rows) == sorted(f'{{"$numberInt":"{number}"}}' for number in numbers)
    table = jobs.table(collection.full_name)
    keys = {row["row_key"] for row in (*jobs.snapshot_rows(table), *jobs.events(table.table_id))}
    assert keys <= {document_keys.row_key(source_document) for source_document in ids}


def test_mongodb_compares_ids_equal_within_a_group_and_no_others(mongo: Client, mongo_jobs: MongoJobs) -> None:
    collection = mongo[mongo_jobs.source.name].ids
    for number, group in enumerate(GROUPS):
        first, *others = group
        _insert(mongo, collection, first, number)
        for other in others:
            with pytest.raises(DuplicateKeyError):
                _insert(mongo, collection, other, number)
    assert collection.count_documents({}) == len(GROUPS)


def test_each_document_is_one_row_by_snapshot_and_stream(
    mongo: Client, mongo_jobs: MongoJobs, settings: JobSettings
) -> None:
    jobs = mongo_jobs
    jobs.settings = chunk_settings(settings, 1 << 20, workers=2)
    read, streamed = (mongo[jobs.source.name][name] for name in ("read", "streamed"))
    ids = [identifier for group in GROUPS for identifier in group]
    streamed.database.create_collection(streamed.name)
    for number, group in enumerate(GROUPS):
        _insert(mongo, read, group[0], number)
    jobs.settle()
    assert len(jobs.lake.chunks.read([str(jobs.table(read.full_name).snapshot_id)])) > 2
    _assert_same(jobs, read, ids)
    for number, group in enumerate(GROUPS):
        _insert(mongo, streamed, group[0], number)
    for collection in (read, streamed):
        collection.update_many({}, {"$set": {"v": 1}, "$unset": {"t": ""}})
    jobs.stream()
    for collection in (read, streamed):
        _assert_same(jobs, collection, ids)
        updated = jobs.lake_documents(collection.full_name)
        assert {dict(document).get("v") for document in updated} == {'{"$numberInt":"1"}'}
        for number, group in enumerate(GROUPS):
            if number % 3 == 0:
                collection.delete_one({"n": number})
            elif group[1:]:  # A document with an equal `_id` takes its place, and is replaced in turn.
                collection.delete_one({"n": number})
                _insert(mongo, collection, group[-1], number)
                _replace(collection, group[-2], number)
    jobs.stream()
    for collection in (read, streamed):
        _assert_same(jobs, collection, ids)
        collection.delete_many({})
    jobs.stream()
    for collection in (read, streamed):
        assert not jobs.lake_documents(collection.full_name)


def _replace(collection: Collection[dict[str, Any]], identifier: Value, number: int) -> None:
    """Replaces a document by one with an equal `_id` of another type."""
    document = RawBSONDocument(elements.document([(b"_id", identifier), (b"n", value(number))]))
    with suppress(WriteError):  # The server numbers the elements of an array, which changes the `_id`.
        collection.replace_one({"n": number}, document)
