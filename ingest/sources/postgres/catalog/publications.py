"""Publications, one for each writer. A missing one is created; an existing one is used as it is.

Each table is in one of them, see `assigned_writer`. Tidemark alters only those that it created, which their comments
say.
"""

import hashlib
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import psycopg
from psycopg import sql

from ingest.common.errors import Failure
from ingest.sources.postgres.catalog.catalog_tables import CatalogTable
from ingest.sources.postgres.postgres_connection import Connection

_log = logging.getLogger(__name__)
_COMMENT = "made by Tidemark, which adds the tables that its sources.yml selects"


@dataclass(frozen=True)
class Published:
    """How a table or partition is published: its columns by name, and the row filter.

    generated: the generated columns among them. published_id: changes when the table is removed and added again, its
    row filter changes, or the publication is altered. writers: more than one if a person added it to several
    publications, or attached it to a table of another writer; then each change is sent more than once.
    """

    columns: tuple[str, ...]
    generated: tuple[str, ...]
    row_filter: str | None
    published_id: int
    writers: tuple[int, ...]


@dataclass(frozen=True)
class Member:
    """A table that is listed in a publication, so that it can be moved to another one.

    columns: its column list (None: all). row_filter: an SQL expression. ancestors: oids of the tables that it is a
    partition of. is_owned: whether the role of the DSN may move it.
    """

    oid: int
    schema: str
    name: str
    writer: int
    published_id: int
    columns: Sequence[str] | None
    row_filter: str | None
    is_owned: bool
    ancestors: Sequence[int]

    @property
    def table_name(self) -> str:
        """`schema.name`, unquoted."""
        return f"{self.schema}.{self.name}"


_SETTINGS = """
SELECT pubname, pubinsert AND pubupdate AND pubdelete AND pubtruncate, pubviaroot, puballtables,
       coalesce(obj_description(oid, 'pg_publication') = %s, false), pg_has_role(pubowner, 'USAGE')
FROM pg_publication WHERE pubname = ANY (%s)
"""


def assigned_writer(table_name: str, writers: Collection[int]) -> int:
    """The writer of a table that is in no publication yet: the same in every process for the same name and writers.

    Rendezvous hashing: with one writer more, only the tables that it gets change their writer. Pure.
    """

    def weight(writer: int) -> bytes:
        return hashlib.sha1(f"{writer}/{table_name}".encode(), usedforsecurity=False).digest()

    return max(writers, key=weight)


def create_missing(connection: Connection, names: Mapping[int, str], tables: Sequence[CatalogTable]) -> None:
    """Creates the writers' missing publications, each with the tables in none that are assigned to its writer.

    tables: the tables to publish, all without a problem. Raises Failure if a publication can't be created or is not
    suitable, and psycopg's LockNotAvailable.
    """
    existing = _read_existing(connection, names)
    missing = {writer: name for writer, name in sorted(names.items()) if name not in existing}
    if missing and not tables:
        raise Failure(
            "no table to publish",
            f"publication {next(iter(missing.values()))}",
            "Correct `tables` in sources.yml, or make what it selects usable (`tidemark check`)",
        )
    published = read(connection, names)
    new = [table for table in tables if not contains(published, table)]
    writers = [writer for writer, name in names.items() if existing.get(name, True)]
    for writer, name in missing.items():
        _create(connection, name, [table for table in new if assigned_writer(table.table_name, writers) == writer])


def create_empty(connection: Connection, names: Mapping[int, str]) -> None:
    """Creates the writers' missing publications without tables. Raises Failure as `create_missing` does."""
    for name in sorted(set(names.values()) - _read_existing(connection, names).keys()):
        _create(connection, name, ())


def select_owned(connection: Connection, names: Mapping[int, str]) -> dict[int, str]:
    """The publications that Tidemark created and may alter. Raises Failure if one is not suitable."""
    existing = _read_existing(connection, names)
    return {writer: name for writer, name in names.items() if existing.get(name)}


def _read_existing(connection: Connection, names: Mapping[int, str]) -> dict[str, bool]:
    """The existing publications; whether Tidemark created and may alter each. Raises Failure for an unsuitable one."""
    rows = connection.execute(_SETTINGS, [_COMMENT, list(names.values())]).fetchall()
    for name, is_complete, via_root, _, _, _ in rows:
        if not is_complete:
            raise Failure(
                "the publication does not send all kinds of changes, and what it leaves out is lost",
                f"publication {name}",
                "ALTER PUBLICATION ... SET (publish = 'insert, update, delete, truncate'), then resnapshot its tables",
            )
        if via_root:
            raise Failure(
                "the publication publishes partitions under their root, so DDL of a single partition can't be detected",
                f"publication {name}",
                "ALTER PUBLICATION ... SET (publish_via_partition_root = false)",
            )
    return {name: has_comment and is_owned and not all_tables for name, _, _, all_tables, has_comment, is_owned in rows}


# Changes when the publication is renamed or gets other options, also if that is undone.
_ALTERED = "((p.xmin::text::bigint & 2147483647) << 32)"

# For a table that is published with its schema, or with the schema of a table that it is a partition of: changes when
# that table gets another schema, also if that is undone, as this writes the row of its type. So does a new owner.
_OF_SCHEMA = """(SELECT s.oid::bigint # y.xmin::text::bigint
     FROM (SELECT c.oid, 0 UNION ALL SELECT a.relid, a.height
           FROM pg_partition_ancestors(c.oid) WITH ORDINALITY AS a (relid, height)) AS self_and_above (oid, height)
     JOIN pg_class k ON k.oid = self_and_above.oid
     JOIN pg_type y ON y.oid = k.reltype
     JOIN pg_publication_namespace s ON s.pnpubid = p.oid AND s.pnnspid = k.relnamespace
     ORDER BY self_and_above.height DESC LIMIT 1)"""

# Before 18 pgoutput sends no generated column and no column list can name one, though attnames lists it on 15.
_GENERATED = """ARRAY(SELECT a.attname::text FROM pg_attribute a
          WHERE a.attrelid = c.oid AND a.attgenerated <> '' AND a.attname = ANY (t.attnames)
            AND current_setting('server_version_num')::int {})"""

# 32 bits of the row filter's hash. If a table is also published with its schema, or with the table that it is a
# partition of, ALTER PUBLICATION can change the filter without another oid of the entry that publishes the table.
_FILTER = "coalesce(('x' || left(md5({}), 8))::bit(32)::bigint, 0)"

# The entry of a partition that is listed in addition to a table above it: its row filter and column list count.
_OWN_ENTRY = """coalesce(
    (SELECT (r.oid::bigint * 7) & 4294967295 FROM pg_publication_rel r
     WHERE r.prpubid = p.oid AND r.prrelid = c.oid AND EXISTS (
         SELECT FROM pg_partition_ancestors(c.oid) AS a (relid)
         JOIN pg_publication_rel o ON o.prrelid = a.relid AND o.prpubid = p.oid WHERE a.relid <> c.oid)), 0)"""

# A table is published by its topmost listed ancestor or by itself, else by its schema, else with all tables. A
# partitioned table may have no partition yet.
_PUBLISHED = f"""
SELECT p.pubname, c.oid::bigint,
    ARRAY(SELECT name::text FROM unnest(t.attnames) AS name WHERE name <> ALL ({_GENERATED.format("< 180000")})),
    {_GENERATED.format(">= 180000")},
    t.rowfilter, (coalesce(
    (SELECT r.oid FROM pg_partition_ancestors(c.oid) WITH ORDINALITY AS a (relid, height)
     JOIN pg_publication_rel r ON r.prrelid = a.relid AND r.prpubid = p.oid ORDER BY a.height DESC LIMIT 1),
    (SELECT r.oid FROM pg_publication_rel r WHERE r.prpubid = p.oid AND r.prrelid = c.oid),
    {_OF_SCHEMA},
    p.oid)::bigint # {_FILTER.format("t.rowfilter")} # {_OWN_ENTRY}) + {_ALTERED}
FROM pg_publication p
JOIN pg_publication_tables t ON t.pubname = p.pubname
JOIN pg_namespace n ON n.nspname = t.schemaname
JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = t.tablename
WHERE p.pubname = ANY (%(names)s)
UNION ALL
SELECT p.pubname, c.oid::bigint, '{{}}', '{{}}', NULL, r.oid::bigint + {_ALTERED}
FROM pg_publication p
JOIN pg_publication_rel r ON r.prpubid = p.oid
JOIN pg_class c ON c.oid = r.prrelid AND c.relkind = 'p'
WHERE p.pubname = ANY (%(names)s)
"""


def read(connection: Connection, names: Mapping[int, str]) -> dict[int, Published]:
    """What the writers' publications send, by oid of table or partition. Raises Failure if one is not suitable."""
    _read_existing(connection, names)
    published = read_unchecked(connection, names)
    if any(len(entry.writers) > 1 for entry in published.values()):
        published = read_unchecked(connection, names)  # a table that was moved meanwhile may have been read twice
    return published


def read_unchecked(connection: Connection, names: Mapping[int, str]) -> dict[int, Published]:
    """Like `read`, for publications that may be unsuitable, and without a second look."""
    writers = {name: writer for writer, name in names.items()}
    published: dict[int, Published] = {}
    rows = connection.execute(_PUBLISHED, {"names": list(writers)})
    for name, oid, columns, generated, row_filter, published_id in rows:
        senders = sorted([*(published[oid].writers if oid in published else ()), writers[name]])
        published[oid] = Published(tuple(columns or ()), tuple(generated), row_filter, published_id, tuple(senders))
    return published


def combined_id(published_ids: set[int]) -> int:
    """The published_id of a table from those of its partitions; they differ if some are listed themselves. Pure."""
    if len(published_ids) == 1:
        return next(iter(published_ids))
    text = ",".join(map(str, sorted(published_ids)))
    return int.from_bytes(hashlib.sha1(text.encode(), usedforsecurity=False).digest()[:7], "big")


def exists(connection: Connection, publication: str) -> bool:
    """Whether a publication of that name exists."""
    return connection.execute("SELECT FROM pg_publication WHERE pubname = %s", [publication]).fetchone() is not None


def covers(published: Mapping[int, Published], table: CatalogTable) -> bool:
    """Whether all partitions of `table` are published, each once, with columns that can be replicated."""
    is_complete = all(partition.partition_id in published for partition in table.partitions)
    return is_complete and not duplicate_writers(published, table) and not column_problem(published, table)


def column_problem(published: Mapping[int, Published], table: CatalogTable) -> str:
    """Why a table's published columns can't be replicated, and what to do; empty if they can."""
    entries = [published[p.partition_id] for p in table.partitions if p.partition_id in published]
    key = [c.name for c in table.columns if table.key_columns is None or c.name in table.key_columns]
    if missing := [name for name in key if any(name not in entry.columns for entry in entries)]:
        return f"its column list leaves out {', '.join(missing)}, which is of its key; publish that too"
    if generated := sorted({name for entry in entries for name in entry.generated}):
        return (
            f"generated columns are published, and are not replicated: {', '.join(generated)}; "
            "leave them out of its column list, or, if it has none, "
            "ALTER PUBLICATION ... SET (publish_generated_columns = none)"
        )
    return ""


def duplicate_writers(published: Mapping[int, Published], table: CatalogTable) -> tuple[int, ...]:
    """The writers of a table, or of a partition of it, that is in several publications; empty if there is none."""
    entries = (published.get(oid) for oid in (table.oid, *(p.partition_id for p in table.partitions)))
    return next((entry.writers for entry in entries if entry is not None and len(entry.writers) > 1), ())


def contains(published: Mapping[int, Published], table: CatalogTable) -> bool:
    """Whether a table is published, even if it has no partition yet."""
    partitions = [partition.partition_id in published for partition in table.partitions]
    return table.oid in published or (bool(partitions) and all(partitions))


# Without the row filter of a partitioned table: only its partitions send rows.
_ENTRY = f"""(r.oid::bigint # CASE c.relkind
    WHEN 'p' THEN 0 ELSE {_FILTER.format("pg_get_expr(r.prqual, r.prrelid)")} END)"""

_MEMBERS = f"""
SELECT c.oid::bigint, n.nspname, c.relname, p.pubname, {_ENTRY} + {_ALTERED},
       (SELECT array_agg(a.attname::text ORDER BY a.attnum) FROM pg_attribute a
        WHERE a.attrelid = c.oid AND a.attnum = ANY (r.prattrs::int2[])),
       pg_get_expr(r.prqual, r.prrelid), pg_has_role(c.relowner, 'USAGE'),
       array(SELECT relid::oid::bigint FROM pg_partition_ancestors(c.oid) WHERE relid <> c.oid)
FROM pg_publication p
JOIN pg_publication_rel r ON r.prpubid = p.oid
JOIN pg_class c ON c.oid = r.prrelid
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE p.pubname = ANY (%s)
ORDER BY n.nspname, c.relname
"""


def read_members(connection: Connection, names: Mapping[int, str]) -> list[Member]:
    """The tables that are listed in publications, ordered by name."""
    writers = {name: writer for writer, name in names.items()}
    rows = connection.execute(_MEMBERS, [list(writers)])
    return [Member(oid, schema, name, writers[publication], *rest) for oid, schema, name, publication, *rest in rows]


def select_attached(members: Sequence[Member]) -> list[Member]:
    """The members that have become partitions of another member: its publication sends them too."""
    listed = {member.oid for member in members}
    return [member for member in members if listed.intersection(member.ancestors)]


def identifiers(tables: Sequence[CatalogTable]) -> sql.Composed:
    """The names of tables for a publication: without tables that inherit from them, which are separate tables.
    Partitions are always published with their root.
    """
    names = (sql.SQL("ONLY ") + sql.Identifier(table.schema, table.name) for table in tables)
    return sql.SQL(", ").join(names)


def _create(connection: Connection, publication: str, tables: Sequence[CatalogTable]) -> None:
    name = sql.Identifier(publication)
    statement = sql.SQL("CREATE PUBLICATION {}").format(name)
    if tables:
        statement += sql.SQL(" FOR TABLE {}").format(identifiers(tables))
    try:
        with connection.transaction():
            connection.execute(statement)
            connection.execute(sql.SQL("COMMENT ON PUBLICATION {} IS {}").format(name, sql.Literal(_COMMENT)))
    except psycopg.errors.DuplicateObject:
        return  # by another process
    except psycopg.errors.LockNotAvailable:
        raise
    except psycopg.Error as error:
        raise Failure(
            f"can't create the publication ({error.diag.message_primary or error})",
            f"publication {publication}",
            f"Let the tables' owner create it, with CREATE on the database: {statement.as_string(connection)}",
        ) from None


def add_table(connection: Connection, publication: str, table: CatalogTable) -> None:
    """Adds a table to a publication; logs a table that can't be added."""
    try:
        connection.execute(
            sql.SQL("ALTER PUBLICATION {} ADD TABLE {}").format(sql.Identifier(publication), identifiers([table]))
        )
        _log.info("%s is published from now on", table.table_name)
    except psycopg.errors.DuplicateObject:
        return
    except psycopg.errors.LockNotAvailable:
        _log.warning("%s is locked: the next catalog poll adds it to publication %s", table.table_name, publication)
    except psycopg.Error as error:
        _log.warning(
            "%s can't be added to publication %s (%s); let an owner do it",
            table.table_name,
            publication,
            error.diag.message_primary or error,
        )


def drop_table(connection: Connection, publication: str, member: Member) -> None:
    """Removes a table from a publication, without tables that inherit from it."""
    table = sql.Identifier(member.schema, member.name)
    connection.execute(sql.SQL("ALTER PUBLICATION {} DROP TABLE ONLY {}").format(sql.Identifier(publication), table))


def move_table(connection: Connection, old: str, new: str, member: Member) -> int:
    """Moves a table to another publication with its column list and row filter, within the caller's transaction;
    returns its new published_id.
    """
    drop_table(connection, old, member)
    entry = sql.SQL("ONLY ") + sql.Identifier(member.schema, member.name)
    if member.columns:
        entry += sql.SQL(" ({})").format(sql.SQL(", ").join(map(sql.Identifier, member.columns)))
    if member.row_filter:
        entry += sql.SQL(f" WHERE ({member.row_filter})")  # as the server prints it
    connection.execute(sql.SQL("ALTER PUBLICATION {} ADD TABLE {}").format(sql.Identifier(new), entry))
    return next(moved.published_id for moved in read_members(connection, {1: new}) if moved.oid == member.oid)


def drop_if_empty(connection: Connection, publication: str) -> None:
    """Drops a publication that Tidemark created and that has no table."""
    if select_owned(connection, {1: publication}) and not read_members(connection, {1: publication}):
        connection.execute(sql.SQL("DROP PUBLICATION {}").format(sql.Identifier(publication)))
