"""Publications, one for each writer: made if missing; one that is there is used as it is.

Each table is in one of them, see `table_assignment`. Tidemark alters only those that it made (their comments say so).
"""

import logging
from collections.abc import Mapping, Sequence
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
    """What is sent of one table or leaf: columns by name, of which rows, and by whose publications.

    generated: those of the columns that are. published_id: another one after it was taken out and put in again, or the
    publication altered. writers: more than one if a person has put it into several, or attached it to a table of
    another's, which brings each change more than once.
    """

    columns: tuple[str, ...]
    generated: tuple[str, ...]
    row_filter: str | None
    published_id: int
    writers: tuple[int, ...]


@dataclass(frozen=True)
class Member:
    """A table that stands in a publication of ours by itself, so that it can be moved to another one.

    columns: those that are published, in SQL (None: all). row_filter: likewise, of which rows. ancestors: oids of the
    tables that it is a partition of.
    """

    oid: int
    schema: str
    name: str
    writer: int
    published_id: int
    columns: tuple[str, ...] | None
    row_filter: str | None
    owned: bool
    ancestors: tuple[int, ...] = ()

    @property
    def table_name(self) -> str:
        """`schema.name`, unquoted."""
        return f"{self.schema}.{self.name}"


_SETTINGS = """
SELECT pubname, pubinsert AND pubupdate AND pubdelete AND pubtruncate, pubviaroot, puballtables,
       coalesce(obj_description(oid, 'pg_publication') = %s, false), pg_has_role(pubowner, 'USAGE')
FROM pg_publication WHERE pubname = ANY (%s)
"""


def make(connection: Connection, names: Mapping[int, str], tables: Sequence[CatalogTable]) -> None:
    """Makes what is missing of the writers' publications: the first one's with the tables that are in none.

    tables: those to publish, all without a problem. Raises Failure if one can't be made or doesn't suit, and psycopg's
    LockNotAvailable.
    """
    there = _checked(connection, names)
    published = read(connection, names)
    for writer, name in sorted(names.items()):
        if name not in there:
            if not tables:
                raise Failure(
                    "no table to publish",
                    f"publication {name}",
                    "Correct `tables` in sources.yml, or make what it selects usable (`tidemark check`)",
                )
            _make(connection, name, [t for t in tables if writer == 1 and not holds(published, t)])


def ours(connection: Connection, names: Mapping[int, str]) -> dict[int, str]:
    """Those of the publications that Tidemark made and may alter. Raises Failure if one doesn't suit."""
    there = _checked(connection, names)
    return {writer: name for writer, name in names.items() if there.get(name)}


def _checked(connection: Connection, names: Mapping[int, str]) -> dict[str, bool]:
    """The publications that are there, and whether they are ours. Raises Failure for one that doesn't suit."""
    rows = connection.execute(_SETTINGS, [_COMMENT, list(names.values())]).fetchall()
    for name, whole, via_root, _, _, _ in rows:
        if not whole:
            raise Failure(
                "the publication does not send all kinds of changes, and what it leaves out is lost",
                f"publication {name}",
                "ALTER PUBLICATION ... SET (publish = 'insert, update, delete, truncate'), then resnapshot its tables",
            )
        if via_root:
            raise Failure(
                "the publication sends partitions under their root, so what happens to one of them is not told",
                f"publication {name}",
                "ALTER PUBLICATION ... SET (publish_via_partition_root = false)",
            )
    return {name: commented and mine and not everything for name, _, _, everything, commented, mine in rows}


# Of a publication: another number after it was renamed or given other options, be it there and back.
_ALTERED = "((p.xmin::text::bigint & 2147483647) << 32)"

# Of a table that is published with its schema, or with that of one that it is a partition of: another number after
# that one was in another schema, be it there and back. That writes the row of its type; so does another owner.
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

# A table is published under the highest of its roots or by itself, else by its schema, else with all
# tables. A root may have no leaf yet.
_PUBLISHED = f"""
SELECT p.pubname, c.oid::bigint,
    ARRAY(SELECT name::text FROM unnest(t.attnames) AS name WHERE name <> ALL ({_GENERATED.format("< 180000")})),
    {_GENERATED.format(">= 180000")},
    t.rowfilter, coalesce(
    (SELECT r.oid FROM pg_partition_ancestors(c.oid) WITH ORDINALITY AS a (relid, height)
     JOIN pg_publication_rel r ON r.prrelid = a.relid AND r.prpubid = p.oid ORDER BY a.height DESC LIMIT 1),
    (SELECT r.oid FROM pg_publication_rel r WHERE r.prpubid = p.oid AND r.prrelid = c.oid),
    {_OF_SCHEMA},
    p.oid)::bigint + {_ALTERED}
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
    """What the writers' publications send, by oid of table, root or leaf. Raises Failure if one doesn't suit."""
    _checked(connection, names)
    found = sent(connection, names)
    if any(len(one.writers) > 1 for one in found.values()):
        found = sent(connection, names)  # what was moved meanwhile may have been seen in both
    return found


def sent(connection: Connection, names: Mapping[int, str]) -> dict[int, Published]:
    """The same at a glance, of publications that may not suit."""
    writers = {name: writer for writer, name in names.items()}
    found: dict[int, Published] = {}
    for name, oid, columns, generated, kept, number in connection.execute(_PUBLISHED, {"names": list(writers)}):
        also = found[oid].writers if oid in found else ()
        by = tuple(sorted((*also, writers[name])))
        found[oid] = Published(tuple(columns or ()), tuple(generated), kept, number, by)
    return found


def is_there(connection: Connection, publication: str) -> bool:
    """Whether there is a publication of that name."""
    return connection.execute("SELECT FROM pg_publication WHERE pubname = %s", [publication]).fetchone() is not None


def sends(published: Mapping[int, Published], table: CatalogTable) -> bool:
    """Whether all leaves of `table` are published, each once, with the columns that are to be."""
    is_whole = all(leaf.partition_id in published for leaf in table.partitions)
    return is_whole and not several(published, table) and not misfit(published, table)


def misfit(published: Mapping[int, Published], table: CatalogTable) -> str:
    """Why the columns that are sent of a table are not those that can be replicated, and what to do; else empty."""
    sent_of = [published[leaf.partition_id] for leaf in table.partitions if leaf.partition_id in published]
    key = [c.name for c in table.columns if table.key_columns is None or c.name in table.key_columns]
    if unsent := [name for name in key if any(name not in one.columns for one in sent_of)]:
        return f"its column list leaves out {', '.join(unsent)}, which is of its key; publish that too"
    if generated := sorted({name for one in sent_of for name in one.generated}):
        return (
            f"generated columns are published, and are not replicated: {', '.join(generated)}; "
            "ALTER PUBLICATION ... SET (publish_generated_columns = none), or leave them out of the column list"
        )
    return ""


def several(published: Mapping[int, Published], table: CatalogTable) -> tuple[int, ...]:
    """The writers whose publications have a table in common, where there should be one; else none."""
    found = (published.get(oid) for oid in (table.oid, *(leaf.partition_id for leaf in table.partitions)))
    return next((one.writers for one in found if one is not None and len(one.writers) > 1), ())


def holds(published: Mapping[int, Published], table: CatalogTable) -> bool:
    """Whether a table is in a publication, though it may have no leaf that could be sent."""
    leaves = [leaf.partition_id in published for leaf in table.partitions]
    return table.oid in published or (bool(leaves) and all(leaves))


_MEMBERS = f"""
SELECT p.pubname, c.oid::bigint, n.nspname, c.relname, r.oid::bigint + {_ALTERED},
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


def members(connection: Connection, names: Mapping[int, str]) -> list[Member]:
    """The tables that stand in publications by themselves, by name."""
    writers = {name: writer for writer, name in names.items()}
    return [
        Member(oid, schema, name, writers[of], published_id, columns and tuple(columns), kept, owned, tuple(above))
        for of, oid, schema, name, published_id, columns, kept, owned, above in connection.execute(
            _MEMBERS, [list(writers)]
        )
    ]


def attached(members: Sequence[Member]) -> list[Member]:
    """Those that have become partitions of another: its publication sends them too."""
    roots = {member.oid for member in members}
    return [member for member in members if roots.intersection(member.ancestors)]


def identifiers(tables: Sequence[CatalogTable]) -> sql.Composed:
    """As publications are to name them: without those that inherit from one, which are tables of their own. Partitions
    always come with their root.
    """
    names = (sql.SQL("ONLY ") + sql.Identifier(table.schema, table.name) for table in tables)
    return sql.SQL(", ").join(names)


def _make(connection: Connection, publication: str, tables: Sequence[CatalogTable]) -> None:
    name = sql.Identifier(publication)
    statement = sql.SQL("CREATE PUBLICATION {}").format(name)
    if tables:
        statement += sql.SQL(" FOR TABLE {}").format(identifiers(tables))
    try:
        with connection.transaction():
            connection.execute(statement)
            connection.execute(sql.SQL("COMMENT ON PUBLICATION {} IS {}").format(name, sql.Literal(_COMMENT)))
    except psycopg.errors.DuplicateObject:
        return  # another process was first
    except psycopg.errors.LockNotAvailable:
        raise
    except psycopg.Error as error:
        raise Failure(
            f"can't make the publication ({error.diag.message_primary or error})",
            f"publication {publication}",
            f"Let the tables' owner make it, with CREATE on the database: {statement.as_string(connection)}",
        ) from None


def add(connection: Connection, publication: str, table: CatalogTable) -> None:
    """Adds a table to a publication; a table that can't be added is named in the log."""
    try:
        connection.execute(
            sql.SQL("ALTER PUBLICATION {} ADD TABLE {}").format(sql.Identifier(publication), identifiers([table]))
        )
        _log.info("%s is published from now on", table.table_name)
    except psycopg.errors.DuplicateObject:
        return
    except psycopg.errors.LockNotAvailable:
        _log.warning("%s is locked by somebody: a later look adds it to publication %s", table.table_name, publication)
    except psycopg.Error as error:
        _log.warning(
            "%s can't be added to publication %s (%s); let an owner do it",
            table.table_name,
            publication,
            error.diag.message_primary or error,
        )


def drop(connection: Connection, publication: str, member: Member) -> None:
    """Takes a table out of a publication, without those that inherit from it."""
    table = sql.Identifier(member.schema, member.name)
    connection.execute(sql.SQL("ALTER PUBLICATION {} DROP TABLE ONLY {}").format(sql.Identifier(publication), table))


def swap(connection: Connection, old: str, new: str, member: Member) -> int:
    """Takes a table out of one publication and puts it into another as it was, inside of the caller's transaction.

    Gives its published_id there.
    """
    drop(connection, old, member)
    what = sql.SQL("ONLY ") + sql.Identifier(member.schema, member.name)
    if member.columns:
        what += sql.SQL(" ({})").format(sql.SQL(", ").join(map(sql.Identifier, member.columns)))
    if member.row_filter:
        what += sql.SQL(f" WHERE ({member.row_filter})")  # as the server gives it
    connection.execute(sql.SQL("ALTER PUBLICATION {} ADD TABLE {}").format(sql.Identifier(new), what))
    row = connection.execute(
        f"SELECT r.oid::bigint + {_ALTERED} FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid "
        "WHERE p.pubname = %s AND r.prrelid = %s::oid",
        [new, member.oid],
    ).fetchone()
    assert row is not None
    return int(row[0])


def drop_if_empty(connection: Connection, publication: str) -> None:
    """Drops a publication of ours that has no table."""
    if ours(connection, {1: publication}) and not members(connection, {1: publication}):
        connection.execute(sql.SQL("DROP PUBLICATION {}").format(sql.Identifier(publication)))
