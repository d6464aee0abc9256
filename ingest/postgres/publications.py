"""Publications: made if missing, with exactly the tables that are selected; an existing one is used
as it is.

To a publication that Tidemark made (its comment says so) new tables are added when they are seen;
never one that was in it before, as a person may have taken it out.
"""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import psycopg
from psycopg import sql

from ingest.errors import Failure
from ingest.postgres.catalog import CatalogTable
from ingest.postgres.connection import Connection

_log = logging.getLogger(__name__)
_COMMENT = "made by Tidemark, which adds the tables that its sources.yml selects"


@dataclass(frozen=True)
class Published:
    """What a publication sends of one table or leaf: columns by name, and of which rows.

    published_id: another one after it was taken out and put in again.
    """

    columns: tuple[str, ...]
    row_filter: str | None
    published_id: int


_SETTINGS = """
SELECT pubinsert AND pubupdate AND pubdelete AND pubtruncate, pubviaroot, puballtables,
       obj_description(oid, 'pg_publication') = %s, pg_has_role(pubowner, 'USAGE')
FROM pg_publication WHERE pubname = %s
"""


def ensure(
    connection: Connection,
    publication: str,
    tables: Sequence[CatalogTable],
    known: Collection[int] = (),
) -> Mapping[int, Published]:
    """What the publication sends, by oid of table or leaf, once it has been made or added to.

    tables: those to publish, all without a problem. known: oids of tables that have been seen
    before. Raises Failure if it can't be made or doesn't suit.
    """
    row = connection.execute(_SETTINGS, [_COMMENT, publication]).fetchone()
    if row is None:
        _make(connection, publication, tables)
    elif not row[0]:
        raise Failure(
            "the publication does not send all kinds of changes, and what it leaves out is lost",
            f"publication {publication}",
            "ALTER PUBLICATION ... SET (publish = 'insert, update, delete, truncate'), then resnapshot its tables",
        )
    elif row[1]:
        raise Failure(
            "the publication sends partitions under their root, so what happens to one of them is not told",
            f"publication {publication}",
            "ALTER PUBLICATION ... SET (publish_via_partition_root = false)",
        )
    published = _published(connection, publication)
    # A partitioned table without partitions may be in it or not: one more time does no harm.
    missing = [t for t in tables if not (t.leaves and _sends(published, t)) and t.oid not in known]
    if row is not None and row[3] and row[4] and missing:
        _add(connection, publication, [t for t in missing if t.owned])
        published = _published(connection, publication)
    return published


def sends(published: Mapping[int, Published], table: CatalogTable) -> bool:
    """Whether all leaves of `table` are published."""
    return _sends(published, table)


def _sends(published: Mapping[int, Published], table: CatalogTable) -> bool:
    return all(leaf.leaf_id in published for leaf in table.leaves)


# A table is published by itself or under one of its roots, else by its schema, else with all
# tables.
_PUBLISHED = """
SELECT c.oid::bigint, t.attnames::text[], t.rowfilter, coalesce(
    (SELECT max(r.oid) FROM pg_publication_rel r WHERE r.prpubid = p.oid AND r.prrelid IN (
        SELECT c.oid UNION ALL SELECT relid FROM pg_partition_ancestors(c.oid))),
    (SELECT max(s.oid) FROM pg_publication_namespace s WHERE s.pnpubid = p.oid AND s.pnnspid = n.oid),
    p.oid)::bigint
FROM pg_publication p
JOIN pg_publication_tables t ON t.pubname = p.pubname
JOIN pg_namespace n ON n.nspname = t.schemaname
JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = t.tablename
WHERE p.pubname = %s
"""


def _published(connection: Connection, publication: str) -> dict[int, Published]:
    rows = connection.execute(_PUBLISHED, [publication]).fetchall()
    return {row[0]: Published(tuple(row[1] or ()), row[2], row[3]) for row in rows}


def _identifiers(tables: Sequence[CatalogTable]) -> sql.Composed:
    return sql.SQL(", ").join(sql.Identifier(table.schema, table.name) for table in tables)


def _make(connection: Connection, publication: str, tables: Sequence[CatalogTable]) -> None:
    if not tables:
        raise Failure(
            "no table to publish",
            f"publication {publication}",
            "Correct `tables` in sources.yml, or make what it selects usable (`tidemark check`)",
        )
    name = sql.Identifier(publication)
    statement = sql.SQL("CREATE PUBLICATION {} FOR TABLE {}").format(name, _identifiers(tables))
    try:
        with connection.transaction():
            connection.execute(statement)
            connection.execute(sql.SQL("COMMENT ON PUBLICATION {} IS {}").format(name, sql.Literal(_COMMENT)))
    except psycopg.errors.DuplicateObject:
        return  # another process was first
    except psycopg.Error as error:
        raise Failure(
            f"can't make the publication ({error.diag.message_primary or error})",
            f"publication {publication}",
            f"Let the tables' owner make it, with CREATE on the database: {statement.as_string(connection)}",
        ) from None


def _add(connection: Connection, publication: str, tables: Sequence[CatalogTable]) -> None:
    for table in tables:
        try:
            connection.execute(
                sql.SQL("ALTER PUBLICATION {} ADD TABLE {}").format(sql.Identifier(publication), _identifiers([table]))
            )
            _log.info("%s is published from now on", table.table_name)
        except psycopg.errors.DuplicateObject:
            continue
        except psycopg.Error as error:
            _log.warning(
                "%s can't be added to publication %s (%s); let an owner do it",
                table.table_name,
                publication,
                error.diag.message_primary or error,
            )
