"""Cursors by own commands, which return documents as the bytes that the server sent.

PyMongo's cursors create an object for each document, reject names such as `a..b`, which servers allow, and do not
expose the token of a change stream's reply.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bson.int64 import Int64
from bson.raw_bson import RawBSONDocument
from pymongo.client_session import ClientSession
from pymongo.database import Database

from ingest.sources.mongodb.bson import elements
from ingest.sources.mongodb.mongodb_connection import RAW, Client


@dataclass(frozen=True)
class Reply:
    """A reply of a cursor. identifier, collection: of the cursor; identifier 0: it is exhausted. token: to resume a
    change stream.
    """

    documents: list[bytes]
    identifier: int
    collection: str
    token: RawBSONDocument | None


def ask(database: Database[dict[str, Any]], session: ClientSession, command: dict[str, Any]) -> Reply:
    """The reply to `find`, `aggregate`, `listCollections` or `getMore`."""
    reply: Any = database.command(command, codec_options=RAW, session=session)
    _, raw = elements.value(reply.raw, b"cursor")
    cursor = elements.fields(raw)
    _, batch = cursor.get(b"firstBatch") or cursor[b"nextBatch"]
    token = cursor.get(b"postBatchResumeToken")
    return Reply(
        documents=elements.members(batch),
        identifier=int.from_bytes(cursor[b"id"][1], "little", signed=True),
        collection=cursor[b"ns"][1][4:-1].decode().partition(".")[2],
        token=RawBSONDocument(token[1]) if token else None,
    )


def replies(client: Client, session: ClientSession, database: str, command: dict[str, Any]) -> Iterator[list[bytes]]:
    """The documents of such a command, reply by reply."""
    reply = ask(client[database], session, command)
    yield reply.documents
    while reply.identifier:
        more = {"getMore": Int64(reply.identifier), "collection": reply.collection}
        reply = ask(client[database], session, more)
        yield reply.documents
