"""Connections to MongoDB, and what its errors mean here.

`client` is connected when it is given out. Errors name hosts, never the user or a password.
"""

from typing import Any

from bson.codec_options import CodecOptions, DatetimeConversion
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient, ReadPreference
from pymongo.errors import (
    ConfigurationError,
    ConnectionFailure,
    InvalidURI,
    OperationFailure,
    PyMongoError,
    ServerSelectionTimeoutError,
)
from pymongo.uri_parser import parse_uri

from ingest.common.errors import Unavailable, UsageError, one_line

Client = MongoClient[dict[str, Any]]
RAW = CodecOptions[RawBSONDocument](document_class=RawBSONDocument)
# Values as documents hold them, dates that Python's can't say included.
EXACT = CodecOptions[dict[str, Any]](datetime_conversion=DatetimeConversion.DATETIME_MS)

OLDEST_SERVER = (6, 0)  # collection UUIDs in events, post-images

UNAUTHORIZED = 13
_AUTHENTICATION_FAILED = 18
NOT_IN_LOG = 280  # a resume token's event
HISTORY_LOST = (NOT_IN_LOG, 286)
TOO_LARGE = 10334
SNAPSHOT_TOO_OLD = (239, 246)
NAMESPACE_NOT_FOUND = 26
# What a new cursor, perhaps on another member, will get over: network, elections, shutdowns, cursors that were killed.
_PASSING = {
    *(6, 7, 43, 63, 89, 91, 133, 134, 136, 150, 175, 189, 234, 237, 262, 317, 358, 384),
    *(9001, 10107, 11600, 11601, 11602, 13388, 13435, 13436),
}


# What PyMongo raises for connection strings, its options' own checks included.
_WRONG = (PyMongoError, ValueError, KeyError, OSError)


class CannotConnect(Unavailable):
    """The servers can't be reached, or don't let us in."""


def place(uri: str) -> str:
    """The hosts of a connection string, for messages."""
    try:
        hosts = parse_uri(uri, connect_timeout=2)["nodelist"] if uri.startswith("mongodb://") else []
    except _WRONG:
        hosts = []
    return ", ".join(f"{host}:{port}" for host, port in hosts) or uri.rpartition("@")[2].partition("/")[0]


def client(uri: str, connect_timeout_seconds: float = 10.0) -> Client:
    """A client of the primary, reading what a majority has; `with` closes it. Raises CannotConnect, UsageError."""
    milliseconds = round(connect_timeout_seconds * 1000)
    found: Client | None = None
    try:
        found = MongoClient(
            uri,
            appname="tidemark",
            serverSelectionTimeoutMS=milliseconds,
            connectTimeoutMS=milliseconds,
            readConcernLevel="majority",
            read_preference=ReadPreference.PRIMARY,
            w="majority",
        )
        found.admin.command("ping")
    except _WRONG as error:
        if found is not None:
            found.close()
        raise _refused(uri, error) from None
    return found


def _refused(uri: str, error: Exception) -> UsageError | CannotConnect:
    """What a connection failed of, in one line."""
    if isinstance(error, InvalidURI | ConfigurationError) or not isinstance(error, PyMongoError):
        return UsageError(f"the connection string is wrong ({error})", place(uri), "Correct uri in sources.yml")
    if isinstance(error, OperationFailure) and error.code in (UNAUTHORIZED, _AUTHENTICATION_FAILED):
        return CannotConnect(
            f"MongoDB refuses the login ({said(error)})", place(uri), "Check user, password, authSource"
        )
    if isinstance(error, ServerSelectionTimeoutError):
        return CannotConnect("no primary of a replica set answers", place(uri), "Check the address and `replicaSet`")
    return CannotConnect(f"MongoDB can't be reached ({said(error)})", place(uri), "Check the address and the network")


def passes(error: PyMongoError) -> bool:
    """Whether it is worth trying again: a network's, an election's or a killed cursor's error."""
    if isinstance(error, OperationFailure):
        return error.code in _PASSING or error.has_error_label("ResumableChangeStreamError")
    return isinstance(error, ConnectionFailure)


def code(error: PyMongoError) -> int | None:
    """The server's code of an error."""
    return error.code if isinstance(error, OperationFailure) else None


def said(error: PyMongoError) -> str:
    """What the server said, on one line without its whole reply."""
    text = (error.details or {}).get("errmsg") if isinstance(error, OperationFailure) else None
    shown = one_line(str(text or error))
    for rest in (" to execute command", ", full error", ", Timeout:"):
        shown = shown.partition(rest)[0]
    return shown
