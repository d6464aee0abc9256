"""A deployment's identity, the time of its oplog, and the heartbeat that advances the change stream."""

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any
from uuid import UUID

import bson
from bson.binary import Binary
from bson.codec_options import CodecOptions, DatetimeConversion
from pymongo.database import Database
from pymongo.errors import OperationFailure, PyMongoError
from pymongo.write_concern import WriteConcern

from ingest.common.errors import Failure
from ingest.sources.mongodb import raw_cursor
from ingest.sources.mongodb.cluster_time import to_position
from ingest.sources.mongodb.mongodb_connection import OLDEST_SERVER, Client, describe_error

_ESCAPING = CodecOptions[dict[str, Any]](
    unicode_decode_error_handler="surrogateescape", datetime_conversion=DatetimeConversion.DATETIME_MS
)
# The options of every change stream.
STREAM = {"fullDocument": "whenAvailable", "showExpandedEvents": True}
CLUSTER = "$cluster"  # the level of a stream of the whole deployment; no database has this name
# The heartbeat's collection, in the stream's database; for a cluster-level stream in this database.
_DATABASE, HEARTBEAT = "tidemark", "tidemark_heartbeat"


def identify_deployment(client: Client, where: str) -> str:
    """The name of the deployment's replica set, and if the role may read it, `/` and its globally unique id.

    Raises Failure for a deployment that is too old or has no change streams.
    """
    version = tuple(client.server_info()["versionArray"][:2])
    if version < OLDEST_SERVER:
        raise Failure(f"the server is MongoDB {version[0]}.{version[1]}", where, "Tidemark needs 6.0 or later")
    hello = client.admin.command("hello")
    if "setName" not in hello and hello.get("msg") != "isdbgrid":
        raise Failure("the server is not a replica set", where, "Change streams need one: start mongod with --replSet")
    name = str(hello.get("setName", "sharded"))
    try:
        settings = client.admin.command("replSetGetConfig")["config"]["settings"]
    except (OperationFailure, KeyError):
        return name
    return f"{name}/{settings['replicaSetId']}"


def is_same_deployment(system: str, other: str) -> bool:
    """Whether two results of `identify_deployment` may be of one deployment; the id may be missing in either."""
    (name, _, number), (other_name, _, other_number) = system.partition("/"), other.partition("/")
    return name == other_name and (not number or not other_number or number == other_number)


def operation_time(client: Client) -> int:
    """The position of the newest operation: everything committed before the call is at or before it."""
    hello = client.admin.command("hello")
    # A member without keys to sign its clock, such as after authentication was turned on, omits operationTime.
    return to_position(hello["operationTime"] if "operationTime" in hello else hello["lastWrite"]["opTime"]["ts"])


def watch_target(client: Client, level: str, **options: Any) -> tuple[Database[dict[str, Any]], dict[str, Any]]:
    """The database to open a change stream of a level on, and the `$changeStream` stage."""
    if level == CLUSTER:
        return client.admin, {"$changeStream": {"allChangesForCluster": True, **options}}
    return client[level], {"$changeStream": options}


def split_stage(client: Client) -> dict[str, Any]:
    """The stage after `$changeStream` that keeps events below 16 MB.

    Newer servers split events. For older ones the stage removes an update's description, which is not used, since the
    event has the whole document. Not both: only a stream that splits an event accepts the token of its fragment.
    """
    version = tuple(client.server_info()["versionArray"])
    splits = version >= (7,) or (6, 0, 9) <= version < (6, 1)
    return {"$changeStreamSplitLargeEvent": {}} if splits else {"$unset": "updateDescription"}


def heartbeat_collection(level: str) -> tuple[str, str]:
    """Database and collection of the heartbeat for a stream's level."""
    return _DATABASE if level == CLUSTER else level, HEARTBEAT


def emit_marker(client: Client, level: str) -> int:
    """A position at or after everything committed before the call; writes the heartbeat, so that the log passes it."""
    before = operation_time(client)
    write_heartbeat(client, level)
    return before


def write_heartbeat(client: Client, level: str) -> str:
    """Write the heartbeat, so that the stream passes all earlier events. Returns the error; empty: it was written.

    Without it the server's no-op, every ten seconds, has the same effect.
    """
    database, collection = heartbeat_collection(level)
    # Not with write concern majority, which would block here while no majority is available.
    place = client[database].get_collection(collection, write_concern=WriteConcern(w=1))
    try:
        place.update_one({"_id": "heartbeat"}, {"$set": {"at": datetime.now(timezone.utc)}}, upsert=True)
    except PyMongoError as error:
        return describe_error(error)
    return ""


def can_write_heartbeat(client: Client, level: str) -> bool:
    """Whether the role has the privileges to write the heartbeat."""
    auth = client.admin.command({"connectionStatus": 1, "showPrivileges": True})["authInfo"]
    if not auth["authenticatedUsers"]:
        return True
    place = dict(zip(("db", "collection"), heartbeat_collection(level), strict=True))
    return any(
        {"insert", "update"} <= set(privilege["actions"])
        and all(privilege["resource"].get(part) in ("", name) for part, name in place.items())
        for privilege in auth["authenticatedUserPrivileges"]
    )


def is_internal(name: str) -> bool:
    """Whether a collection is the heartbeat's, the server's own, or a temporary one of `$out`."""
    return name == HEARTBEAT or name.startswith(("system.", "tmp.agg_out."))


def list_entries(client: Client, database: str, **options: Any) -> list[dict[str, Any]]:
    """The entries of listCollections. Names that are not valid UTF-8 have surrogates; dates in the definition of a view
    or validator can be outside of Python's range.
    """
    with client.start_session() as session:
        replies = raw_cursor.replies(client, session, database, {"listCollections": 1, "cursor": {}, **options})
        return [bson.decode(entry, _ESCAPING) for reply in replies for entry in reply]


def collection_uuid(listed: Mapping[str, Any]) -> UUID | None:
    """The UUID of an entry of listCollections; None for a view."""
    uuid = listed.get("info", {}).get("uuid")
    return uuid.as_uuid() if isinstance(uuid, Binary) else uuid
