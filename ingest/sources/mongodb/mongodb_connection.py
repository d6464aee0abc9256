"""Connections to MongoDB, and the classification of its errors.

`connect` returns a connected client. Errors name hosts, never the user or a password.
"""

from typing import Any

from bson.codec_options import CodecOptions, DatetimeConversion
from bson.raw_bson import RawBSONDocument
from dns.exception import DNSException
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
# Values as documents have them, including dates outside of Python's range.
EXACT = CodecOptions[dict[str, Any]](datetime_conversion=DatetimeConversion.DATETIME_MS)

OLDEST_SERVER = (6, 0)  # collection UUIDs in events, post-images

UNAUTHORIZED = 13
_AUTHENTICATION_FAILED = 18
NOT_IN_LOG = 280  # a resume token's event
HISTORY_LOST = (NOT_IN_LOG, 286)
TOO_LARGE = 10334
SNAPSHOT_TOO_OLD = (239, 246)
NAMESPACE_NOT_FOUND = 26
# Errors that a new cursor, perhaps on another member, resolves: network, elections, shutdowns, killed cursors.
_TRANSIENT_CODES = {
    *(6, 7, 43, 63, 89, 91, 133, 134, 136, 150, 175, 189, 234, 237, 262, 317, 358, 384),
    *(9001, 10107, 11600, 11601, 11602, 13388, 13435, 13436),
}


# What PyMongo raises while connecting, including errors of the connection string's options.
_CONNECTION_ERRORS = (PyMongoError, ValueError, KeyError, OSError)


class CannotConnect(Unavailable):
    """The servers can't be reached, or reject the login."""


def describe_endpoint(uri: str) -> str:
    """The hosts of a connection string, for messages."""
    try:
        hosts = parse_uri(uri, connect_timeout=2)["nodelist"] if uri.startswith("mongodb://") else []
    except _CONNECTION_ERRORS:
        hosts = []
    return ", ".join(f"{host}:{port}" for host, port in hosts) or uri.rpartition("@")[2].partition("/")[0]


def connect(uri: str, connect_timeout_seconds: float = 10.0) -> Client:
    """A client of the primary with read concern majority; `with` closes it. Raises CannotConnect, UsageError."""
    milliseconds = round(connect_timeout_seconds * 1000)
    client: Client | None = None
    try:
        client = MongoClient(
            uri,
            appname="tidemark",
            serverSelectionTimeoutMS=milliseconds,
            connectTimeoutMS=milliseconds,
            readConcernLevel="majority",
            read_preference=ReadPreference.PRIMARY,
            w="majority",
        )
        client.admin.command("ping")
    except _CONNECTION_ERRORS as error:
        if client is not None:
            client.close()
        raise _connection_error(uri, error) from None
    return client


def _connection_error(uri: str, error: Exception) -> UsageError | CannotConnect:
    """The error of a failed connection, in one line. PyMongo raises ConfigurationError also for a failed DNS query."""
    if isinstance(error.__cause__ or error.__context__, DNSException):
        return CannotConnect(
            f"DNS does not resolve the host ({one_line(str(error))})", describe_endpoint(uri), "Check the host's name"
        )
    if isinstance(error, InvalidURI | ConfigurationError) or not isinstance(error, PyMongoError):
        return UsageError(
            f"the connection string is invalid ({error})", describe_endpoint(uri), "Correct uri in sources.yml"
        )
    if isinstance(error, OperationFailure) and error.code in (UNAUTHORIZED, _AUTHENTICATION_FAILED):
        return CannotConnect(
            f"MongoDB rejects the login ({describe_error(error)})",
            describe_endpoint(uri),
            "Check user, password, authSource",
        )
    if isinstance(error, ServerSelectionTimeoutError):
        return CannotConnect(
            "no primary of a replica set answers", describe_endpoint(uri), "Check the address and `replicaSet`"
        )
    return CannotConnect(
        f"MongoDB can't be reached ({describe_error(error)})",
        describe_endpoint(uri),
        "Check the address and the network",
    )


def is_transient(error: PyMongoError) -> bool:
    """Whether a retry may succeed: an error of the network, an election or a killed cursor."""
    if isinstance(error, OperationFailure):
        return error.code in _TRANSIENT_CODES or error.has_error_label("ResumableChangeStreamError")
    return isinstance(error, ConnectionFailure)


def error_code(error: PyMongoError) -> int | None:
    """The server's code of an error."""
    return error.code if isinstance(error, OperationFailure) else None


def describe_error(error: PyMongoError) -> str:
    """The server's error message on one line, without its whole reply."""
    text = (error.details or {}).get("errmsg") if isinstance(error, OperationFailure) else None
    shown = one_line(str(text or error))
    for rest in (" to execute command", ", full error", ", Timeout:"):
        shown = shown.partition(rest)[0]
    return shown
