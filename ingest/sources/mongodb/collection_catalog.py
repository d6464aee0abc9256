"""The collections of a deployment: which are selected, and which of those can be replicated."""

from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID

from pymongo.errors import OperationFailure

from ingest.common.records import table_id
from ingest.config.sources_file import SYSTEM_DATABASES, MongoSource, has_wildcard, including_patterns
from ingest.lake.source_tables import Partition, SourceTable
from ingest.sources.mongodb import mongodb_server
from ingest.sources.mongodb.mongodb_connection import RAW, Client, describe_error
from ingest.sources.mongodb.mongodb_server import collection_uuid, is_internal

KEY = ("_id",)
ANY = ""  # in place of a name: all collections of a database

# By `type` of listCollections; another type is named as the server does.
_KINDS = {"collection": "", "timeseries": "time series"}


@dataclass(frozen=True)
class Collection:
    """A collection: `database.name`, UUID; problem: why it can't be replicated; has_images: keeps post-images.

    kind: `view`, `time series` or `capped collection`, whose changes are not all in change streams; else empty.
    """

    database: str
    name: str
    uuid: UUID | None
    problem: str = ""
    has_images: bool = False
    kind: str = ""

    @property
    def full_name(self) -> str:
        """`database.name`."""
        return f"{self.database}.{self.name or '*'}"

    def to_source_table(self, source: str) -> SourceTable:
        """The row of raw.source_tables that registers the collection."""
        assert self.uuid is not None
        relation = relation_id(self.uuid)
        return SourceTable(
            source=source,
            table_id=generation(source, self.uuid, self.full_name),
            table_name=self.full_name,
            relation_id=relation,
            replica_identity="d",
            key_columns=KEY,
            columns=(),
            partitions=(Partition(relation, self.full_name, 0),),
        )


def relation_id(uuid: UUID) -> int:
    """63 bits of a collection's UUID, for the column that holds oids of Postgres."""
    return uuid.int >> 65


def generation(source: str, uuid: UUID, full_name: str) -> str:
    """The table_id of a collection. Its row keys distinguish values, not types."""
    return table_id(source, str(uuid), full_name, KEY, "by value")


def list_collections(client: Client, source: MongoSource) -> list[Collection]:
    """The selected collections, ordered by name, including collections in `collections` that do not exist.

    All databases are listed only if a pattern has a wildcard in the database's name.
    """
    collections = {
        collection.full_name: collection for name in _databases(client, source) for collection in _listed(client, name)
    }
    selected = [
        collection for name, collection in collections.items() if collection.name == ANY or source.selects(name)
    ]
    unlisted_databases = {collection.database for collection in selected if collection.name == ANY}
    for pattern in including_patterns(source.collections):
        database, _, name = pattern.partition(".")
        if (
            not has_wildcard(pattern)
            and source.selects(pattern)
            and pattern not in collections
            and database not in unlisted_databases
        ):
            selected.append(Collection(database, name, None, "it does not exist"))
    return sorted(selected, key=lambda collection: collection.full_name)


def read_problem(client: Client, collection: Collection) -> str:
    """Why a collection can't be read; empty: it can."""
    query = {"find": collection.name, "projection": {"_id": 1}, "limit": 1, "singleBatch": True}
    try:
        client[collection.database].command(query, codec_options=RAW)
        size(client, collection)
    except OperationFailure as error:
        return f"it can't be read ({describe_error(error)}); grant find and collStats on it"
    return ""


def size(client: Client, collection: Collection) -> int:
    """The bytes of a collection's documents."""
    return int(client[collection.database].command("collStats", collection.name).get("size", 0))


def _databases(client: Client, source: MongoSource) -> list[str]:
    """The databases that the patterns can match."""
    patterns = {pattern.partition(".")[0] for pattern in including_patterns(source.collections)}
    literal = {name for name in patterns if not has_wildcard(name)}
    listed = client.list_database_names() if patterns - literal else []
    return sorted(literal | {name for name in listed if name not in SYSTEM_DATABASES})


def _listed(client: Client, database: str) -> Iterator[Collection]:
    try:
        entries = mongodb_server.list_entries(client, database)
    except OperationFailure as error:
        yield Collection(database, ANY, None, f"its collections can't be listed ({describe_error(error)})")
        return
    for entry in entries:
        name, options = str(entry["name"]), entry.get("options", {})
        if is_internal(name):
            continue
        images = bool(options.get("changeStreamPreAndPostImages", {}).get("enabled"))
        kind = "capped collection" if options.get("capped") else _KINDS.get(entry["type"], entry["type"])
        yield Collection(database, _shown(name), collection_uuid(entry), _problem(name, kind), images, kind)


def _shown(name: str) -> str:
    return name.encode(errors="surrogateescape").decode(errors="backslashreplace")


def _problem(name: str, kind: str) -> str:
    if name != _shown(name):
        return "its name is not valid UTF-8"
    if kind == "capped collection":
        return "it is capped, and the change stream does not contain the removal of its oldest documents"
    return f"it is a {kind}, which change streams do not cover" if kind else ""
