"""The checks of tables: which tables are selected, and which of them can be replicated."""

from collections.abc import Collection, Iterator, Sequence
from fnmatch import fnmatchcase

from ingest.common.findings import Finding, exclusion_level
from ingest.config.sources_file import PostgresSource, excluding_pattern, including_patterns
from ingest.sources.postgres.catalog.catalog_tables import CatalogTable
from ingest.sources.postgres.postgres_connection import Connection

_SHOWN = 5

# Relations that a pattern may match but that can't be selected.
_OTHERS = """
SELECT n.nspname || '.' || c.relname,
       CASE WHEN c.relkind = 'f' THEN 'foreign table'
            WHEN c.relkind IN ('v', 'm') THEN 'view'
            ELSE 'partition' END
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE (c.relkind IN ('v', 'm', 'f') OR c.relkind IN ('r', 'p') AND c.relispartition)
  AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname !~ '^pg_(toast|temp)'
ORDER BY 1
"""
_HIDDEN_ROWS = """
SELECT oid::bigint FROM pg_class WHERE oid = ANY (%s::oid[]) AND row_security_active(oid)
"""


def check_tables(
    source: PostgresSource, connection: Connection, tables: Sequence[CatalogTable], needed: Collection[str]
) -> Iterator[Finding]:
    """tables: the selected tables. needed: the names of the tables that definitions read."""
    required = {t.table_name for t in tables if t.table_name in needed or source.names(t.table_name)}
    others: dict[str, str] = dict(connection.execute(_OTHERS).fetchall())
    yield from _check_patterns(source, tables, others)
    for table in tables:
        if table.problem:
            what, _, fix = table.problem.partition("; ")
            yield _left_out(source, table, required, what, fix[:1].upper() + fix[1:])
    yield from _check_hidden_rows(source, connection, tables, required)
    usable = sum(not table.problem for table in tables)
    if tables and not usable:
        yield Finding("error", "none of the selected tables can be replicated", f"source {source.name}")
    if usable:
        yield Finding("ok", f"{usable} of {len(tables)} tables can be read", f"source {source.name}")
    for kind in ("view", "foreign table"):
        left = [name for name, other_kind in others.items() if other_kind == kind and source.selects(name)]
        if left:
            what = f"{len(left)} {kind}{'s' if len(left) > 1 else ''} left out: {shown(left)}"
            yield Finding("ok", what, f"source {source.name}")


def _left_out(source: PostgresSource, table: CatalogTable, required: Collection[str], what: str, fix: str) -> Finding:
    """The finding for a table that can't be replicated; if no definition needs it, it may also be excluded."""
    name = table.table_name
    level = exclusion_level(required=name in required)
    exclude = f"; or exclude it in sources.yml: {excluding_pattern(name)}" if level == "warning" else ""
    return Finding(level, what, _where(source, table), fix + exclude)


def _check_patterns(
    source: PostgresSource, tables: Sequence[CatalogTable], others: dict[str, str]
) -> Iterator[Finding]:
    if not tables:
        yield Finding(
            "error",
            f"no table is selected by {shown(source.tables)}",
            f"source {source.name}",
            "Correct `tables` in sources.yml: patterns of schema.table, case-sensitive",
        )
        return
    for pattern in including_patterns(source.tables):
        if any(fnmatchcase(table.table_name, pattern) for table in tables):
            continue
        kinds = {kind for name, kind in others.items() if fnmatchcase(name, pattern)}
        fix = "Correct or remove it in sources.yml"
        if kinds == {"partition"}:
            fix = "Select the partitioned table: that includes its partitions"
        elif kinds:
            fix = f"A {kinds.pop()} has no changes in the log: remove it from sources.yml"
        yield Finding("warning", "it selects no table", f"source {source.name}, pattern {pattern!r}", fix)


def _check_hidden_rows(
    source: PostgresSource, connection: Connection, tables: Sequence[CatalogTable], required: Collection[str]
) -> Iterator[Finding]:
    """Report tables with row-level security: the session has row_security off, so reading them fails."""
    partitions = {partition.partition_id: table for table in tables for partition in table.partitions}
    oids = [*partitions, *(table.oid for table in tables)]
    hidden = {row[0] for row in connection.execute(_HIDDEN_ROWS, [oids])}
    ((role,),) = connection.execute("SELECT quote_ident(current_user)").fetchall()
    for table in tables:
        if table.oid in hidden or any(partition.partition_id in hidden for partition in table.partitions):
            fix = f"ALTER ROLE {role} BYPASSRLS"
            yield _left_out(source, table, required, "row-level security hides rows from the role", fix)


def _where(source: PostgresSource, table: CatalogTable) -> str:
    return f"source {source.name}, table {table.table_name}"


def shown(names: Sequence[str]) -> str:
    """The first of `names`, and the number of the others."""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
