"""Why a table can't be replicated, and what to do about it. Pure."""

from collections.abc import Sequence

from ingest.lake.source_tables import Column


def table_problem(
    table: str,
    unreadable: Sequence[tuple[str, str]],
    role: str,
    partitions: Sequence[str],
    unlogged: Sequence[str],
    foreign: Sequence[str],
    identity: str,
    key: Sequence[str] | None,
    *,
    differ: bool,
    full_fails: bool,
    is_partitioned: bool,
) -> str:
    """The problem of a table as a whole; empty: none.

    All names are quoted. unreadable: schema and name of the relations that the role may not read: the table or
    partitions. partitions: the table's partitions, or the table itself, where the replica identity is set. unlogged,
    foreign: the partitions that are so; unlogged may contain the table itself. identity: the letter of the partitions,
    or of the table if it has none. differ: the partitions differ in identity or key. full_fails: it has generated
    columns, on a server where updates of such a table fail under REPLICA IDENTITY FULL.
    """
    if unreadable:
        return _unreadable(table, unreadable, role)
    if unlogged:
        which = "it" if unlogged[0] == table else f"its partition {unlogged[0]}"
        fix = _alter_statements(unlogged, "SET LOGGED")
        if is_partitioned and unlogged[0] == table:  # before 18 the server accepts SET LOGGED, which has no effect
            fix = "create it again without UNLOGGED"
        return f"{which} is unlogged, so its changes are in no log; {fix}"
    if foreign:
        return f"its partition {foreign[0]} is a foreign table, whose changes are in no log of this server"
    if differ:
        return "its partitions differ in their replica identity; give all of them the same"
    if identity == "n" or (identity in ("d", "i") and key is None):
        full = "" if full_fails else f", or {_alter_statements(partitions, 'REPLICA IDENTITY FULL')}"
        return (
            "it has no replica identity, so its updates and deletes can't be identified (publishing them "
            f"would make them fail); add a primary key{full}"
        )
    return ""


def _alter_statements(tables: Sequence[str], action: str) -> str:
    return "; ".join(f"ALTER TABLE {table} {action}" for table in tables)


def quote_identifier(name: str) -> str:
    """A name as a quoted identifier in SQL."""
    return '"' + name.replace('"', '""') + '"'


def _unreadable(table: str, unreadable: Sequence[tuple[str, str]], role: str) -> str:
    names = [f"{schema}.{name}" for schema, name in unreadable]
    partitions = "" if table in names else f"its partition{'s' if len(names) > 1 else ''} {', '.join(names)}"
    schemas = ", ".join(dict.fromkeys(schema for schema, _ in unreadable))
    return (
        f"no permission to read {partitions or 'it'}; "
        f"GRANT USAGE ON SCHEMA {schemas} TO {role}; GRANT SELECT ON {', '.join(names)} TO {role}"
    )


def name_problem(shared: bool) -> str:
    """The problem of a table's name; empty: none. shared: another table has the same unquoted `schema.name`."""
    if shared:
        return 'another table has the same unquoted name, as in "a.b".c and a."b.c"; rename one of them'
    return ""


def columns_problem(columns: Sequence[Column], key: Sequence[str] | None, *, whole: bool) -> str:
    """The problem of a table's columns; empty: none.

    whole: the identity is FULL and a column is generated, on a server that rejects updates of such a table.
    """
    names = {column.name for column in columns}
    if not names:
        return "it has no columns that can be replicated; exclude it from `tables`"
    generated = sorted(set(key or ()) - names)
    if generated or whole:
        which = f" ({generated[0]})" if generated else ""
        return (
            f"its replica identity has a generated column{which}, so publishing it would make its updates and deletes "
            "fail; give it a primary key without one, and REPLICA IDENTITY DEFAULT"
        )
    return ""
