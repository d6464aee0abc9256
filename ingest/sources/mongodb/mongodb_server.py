"""What a deployment says of itself: which one it is, the time of its log, and the heartbeat that moves it."""

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any
from uuid import UUID

from bson.binary import Binary
from pymongo.database import Database
from pymongo.errors import OperationFailure, PyMongoError
from pymongo.write_concern import WriteConcern

from ingest.common.errors import Failure
from ingest.sources.mongodb.cluster_time import position
from ingest.sources.mongodb.mongodb_connection import OLDEST_SERVER, Client, said

# How a change stream is asked for, at whatever level.
STREAM = {"fullDocument": "whenAvailable", "showExpandedEvents": True}
CLUSTER = "cluster"  # the level of a stream that is not of one database alone
# The heartbeat's collection, in the stream's database; in this one if the stream is of the cluster.
_DATABASE, HEARTBEAT = "tidemark", "tidemark_heartbeat"


def identify(client: Client, where: str) -> str:
    """The name of the deployment's replica set; if the role may ask for it, also `/` and its id, which no other has.

    Raises Failure for a deployment that is too old or has no change streams.
    """
    version = tuple(client.server_info()["versionArray"][:2])
    if version < OLDEST_SERVER:
        raise Failure(f"the server is MongoDB {version[0]}.{version[1]}", where, "Tidemark needs 6.0 or later")
    hello = client.admin.command("hello")
    if "setName" not in hello and hello.get("msg") != "isdbgrid":
        raise Failure("the server is no replica set", where, "Change streams need one: start mongod with --replSet")
    name = str(hello.get("setName", "sharded"))
    try:
        settings = client.admin.command("replSetGetConfig")["config"]["settings"]
    except (OperationFailure, KeyError):
        return name
    return f"{name}/{settings['replicaSetId']}"


def is_same(system: str, other: str) -> bool:
    """Whether what `identify` gave at two times may be of one deployment: the role may have learnt the id meanwhile."""
    (name, _, number), (other_name, _, other_number) = system.partition("/"), other.partition("/")
    return name == other_name and (not number or not other_number or number == other_number)


def operation_time(client: Client) -> int:
    """The position of the newest operation: all that was committed before the call is at or before it."""
    told = client.admin.command("hello")
    # A member that has no keys yet to sign its clock with, as after authentication was turned on, keeps it to itself.
    return position(told["operationTime"] if "operationTime" in told else told["lastWrite"]["opTime"]["ts"])


def stream_of(client: Client, level: str, **options: Any) -> tuple[Database[dict[str, Any]], dict[str, Any]]:
    """The database that a change stream of a level is asked of, and the `$changeStream` stage."""
    if level == CLUSTER:
        return client.admin, {"$changeStream": {"allChangesForCluster": True, **options}}
    return client[level], {"$changeStream": options}


def large_events(client: Client) -> dict[str, Any]:
    """The stage behind `$changeStream` that keeps events below 16 MB.

    Where the server can split events it does. An older server leaves out what an update changed, which is not used: the
    document is told as a whole. Not both: the token of a fragment is known only to a stream that splits the same event.
    """
    version = tuple(client.server_info()["versionArray"])
    splits = version >= (7,) or (6, 0, 9) <= version < (6, 1)
    return {"$changeStreamSplitLargeEvent": {}} if splits else {"$unset": "updateDescription"}


def heartbeat_of(level: str) -> tuple[str, str]:
    """Database and collection of the heartbeat of a stream of a level."""
    return _DATABASE if level == CLUSTER else level, HEARTBEAT


def watermark(client: Client, level: str) -> int:
    """A position past everything that was committed before the call; the log is made to go past it."""
    at = operation_time(client)
    beat(client, level)
    return at


def beat(client: Client, level: str) -> str:
    """Writes the heartbeat, so that the stream comes past what was before. Why it can't be written; empty if it was.

    Without it the server's own no-op, every ten seconds, does the same.
    """
    database, collection = heartbeat_of(level)
    # The stream shows it when a majority has it; who waited for that here would wait as long as a majority is away.
    place = client[database].get_collection(collection, write_concern=WriteConcern(w=1))
    try:
        place.update_one({"_id": "heartbeat"}, {"$set": {"at": datetime.now(timezone.utc)}}, upsert=True)
    except PyMongoError as error:
        return said(error)
    return ""


def may_beat(client: Client, level: str) -> bool:
    """Whether the role may write the heartbeat; asked without writing it."""
    told = client.admin.command({"connectionStatus": 1, "showPrivileges": True})["authInfo"]
    if not told["authenticatedUsers"]:
        return True
    place = dict(zip(("db", "collection"), heartbeat_of(level), strict=True))
    return any(
        {"insert", "update"} <= set(each["actions"])
        and all(each["resource"].get(part) in ("", name) for part, name in place.items())
        for each in told["authenticatedUserPrivileges"]
    )


def is_internal(name: str) -> bool:
    """Whether a collection is the heartbeat's, the server's own, or what `$out` writes before it renames it."""
    return name == HEARTBEAT or name.startswith(("system.", "tmp.agg_out."))


def uuid_of(listed: Mapping[str, Any]) -> UUID | None:
    """The UUID of an entry of listCollections; None for a view."""
    found = listed.get("info", {}).get("uuid")
    return found.as_uuid() if isinstance(found, Binary) else found
