"""The checks of publications: every table is published, with all operations, by exactly one of them."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from psycopg import sql

from ingest.common.findings import Finding, exclusion_level
from ingest.config.sources_file import PostgresSource
from ingest.sources.postgres.catalog.catalog_tables import CatalogTable
from ingest.sources.postgres.catalog.eligibility import quote_identifier
from ingest.sources.postgres.catalog.publications import (
    Published,
    column_problem,
    identifiers,
    read_unchecked,
)
from ingest.sources.postgres.postgres_connection import Connection

_OPERATIONS = ("insert", "update", "delete", "truncate")

# Publications that Tidemark created have it in their comment, see publications.py.
_PUBLICATION = """
SELECT pubviaroot, ARRAY[pubinsert, pubupdate, pubdelete, pubtruncate],
       coalesce(obj_description(oid, 'pg_publication') LIKE 'made by Tidemark%%', false)
           AND NOT puballtables AND pg_has_role(pubowner, 'USAGE'),
       puballtables
FROM pg_publication WHERE pubname = %s
"""


@dataclass(frozen=True)
class _Publication:
    """An existing publication. sent: what it publishes, by oid of table or partition."""

    name: str
    via_root: bool
    operations: Sequence[bool]
    is_ours: bool
    has_all: bool
    sent: Mapping[int, Published]

    def sends(self, table: CatalogTable) -> bool:
        under_root = self.via_root and table.oid in self.sent
        return self.has_all or under_root or all(partition.partition_id in self.sent for partition in table.partitions)


def check_publications(
    source: PostgresSource, connection: Connection, tables: Sequence[CatalogTable], needed: Collection[str]
) -> Iterator[Finding]:
    """tables: the selected tables that can be replicated. needed: the names of the tables that definitions read."""
    required = {t.table_name for t in tables if t.table_name in needed or source.names(t.table_name)}
    if not tables:
        return
    publications: list[_Publication] = []
    for writer in range(1, source.writers + 1):
        name = source.publication_of(writer)
        publication = _read(connection, name)
        if publication is None:
            yield from _check_missing(source, connection, name, tables if writer == 1 else ())
        else:
            publications.append(publication)
            yield from _check_options(source, publication)
            yield from _check_sent(source, publication, tables, required)
    if len(publications) == source.writers:
        yield from _check_covered(source, connection, publications, tables, required)


def _read(connection: Connection, name: str) -> _Publication | None:
    row = connection.execute(_PUBLICATION, [name]).fetchone()
    if row is None:
        return None
    return _Publication(name, row[0], row[1], row[2], row[3], read_unchecked(connection, {1: name}))


def _check_missing(
    source: PostgresSource, connection: Connection, name: str, tables: Sequence[CatalogTable]
) -> Iterator[Finding]:
    row = connection.execute("SELECT has_database_privilege(current_database(), 'CREATE')").fetchone()
    not_owned = [table.table_name for table in tables if not table.is_owned]
    if row and row[0] and not not_owned:
        yield Finding("ok", "the publication will be created", _where(source, name))
        return
    why = f"it does not own {not_owned[0]}" if not_owned else "it lacks CREATE on the database"
    statement = sql.SQL("CREATE PUBLICATION {}").format(sql.Identifier(name))
    if tables:
        statement += sql.SQL(" FOR TABLE {}").format(identifiers(tables))
    yield Finding(
        "error",
        f"the publication does not exist, and the role can't create it: {why}",
        _where(source, name),
        f"The owner of the tables can create it: {statement.as_string(connection)}",
    )


def _check_options(source: PostgresSource, publication: _Publication) -> Iterator[Finding]:
    where, alter = _where(source, publication.name), f"ALTER PUBLICATION {quote_identifier(publication.name)} SET"
    if publication.via_root:
        yield Finding(
            "error",
            "the publication publishes partitions under their root, so DDL of a single partition can't be detected",
            where,
            f"{alter} (publish_via_partition_root = false)",
        )
    left = [name for name, sent in zip(_OPERATIONS, publication.operations, strict=True) if not sent]
    if left:
        yield Finding(
            "error",
            f"the publication does not publish every {' and '.join(left)}",
            where,
            f"{alter} (publish = '{', '.join(_OPERATIONS)}')",
        )


def _check_sent(
    source: PostgresSource, publication: _Publication, tables: Sequence[CatalogTable], required: Collection[str]
) -> Iterator[Finding]:
    """Report row filters and column lists, which are allowed."""
    for table in tables:
        partitions = [
            publication.sent[partition.partition_id]
            for partition in table.partitions
            if partition.partition_id in publication.sent
        ]
        where = f"source {source.name}, table {table.table_name} in publication {publication.name}"
        if filters := sorted({partition.row_filter for partition in partitions if partition.row_filter}):
            yield Finding("warning", f"a row filter applies: {filters[0]}", where)
        if why := column_problem(publication.sent, table):
            what, _, fix = why.partition("; ")
            fix = fix.replace("PUBLICATION ...", f"PUBLICATION {quote_identifier(publication.name)}")
            yield Finding(
                exclusion_level(required=table.table_name in required), what, where, fix[:1].upper() + fix[1:]
            )
            continue
        absent = [c.name for c in table.columns if any(c.name not in partition.columns for partition in partitions)]
        if absent:
            yield Finding("warning", f"columns are not published: {', '.join(absent)}", where)


def _check_covered(
    source: PostgresSource,
    connection: Connection,
    publications: Sequence[_Publication],
    tables: Sequence[CatalogTable],
    required: Collection[str],
) -> Iterator[Finding]:
    first = publications[0]
    waiting = []
    for table in tables:
        senders = [publication.name for publication in publications if table.partitions and publication.sends(table)]
        if len(senders) > 1:
            yield Finding(
                "error",
                f"it is in several of the source's publications: {', '.join(senders)}",
                f"source {source.name}, table {table.table_name}",
                "Keep it in one of them: a table belongs to one writer",
            )
        elif table.partitions and not senders:
            waiting.append(table)
    left = [table for table in waiting if not (first.is_ours and table.is_owned)]
    done = len(tables) - len(waiting)
    for level in ("error", "warning"):
        of_level = [
            table for table in left if exclusion_level(required=not done or table.table_name in required) == level
        ]
        if not of_level:
            continue
        statement = sql.SQL("ALTER PUBLICATION {} ADD TABLE {}").format(
            sql.Identifier(first.name), identifiers(of_level)
        )
        yield Finding(
            exclusion_level(required=level == "error"),
            f"not published: {', '.join(table.table_name for table in of_level)}",
            _where(source, first.name),
            f"Add the tables to replicate: {statement.as_string(connection)}",
        )
    will = f"; {len(waiting) - len(left)} more will be added" if len(waiting) > len(left) else ""
    if done:
        yield Finding("ok", f"{done} tables are published{will}", _where(source, first.name))


def _where(source: PostgresSource, publication: str) -> str:
    return f"source {source.name}, publication {publication}"
