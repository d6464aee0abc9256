"""What keeps a table from being replicated, and what to do about it. Pure."""

from collections.abc import Sequence

from ingest.common.errors import Failure
from ingest.lake.source_tables import Column


def of_table(
    table: str,
    unreadable: Sequence[tuple[str, str]],
    role: str,
    leaves: Sequence[str],
    unlogged: Sequence[str],
    foreign: Sequence[str],
    identity: str,
    key: Sequence[str] | None,
    *,
    differ: bool,
) -> str:
    """What is wrong with a table as a whole; empty if nothing is.

    All names are quoted. unreadable: schema and name of what the role may not read, the table itself or partitions.
    leaves: its partitions, or itself; a replica identity counts where it is set. unlogged, foreign: which of its
    partitions are that; unlogged may name the table itself. identity: the letter of its leaves, or its own if it has
    none; differ: whether they have several, or several keys.
    """
    if unreadable:
        return _unreadable(table, unreadable, role)
    if unlogged:
        which = "it" if unlogged[0] == table else f"its partition {unlogged[0]}"
        return f"{which} is unlogged, so its changes are in no log; {_each(unlogged, 'SET LOGGED')}"
    if foreign:
        return f"its partition {foreign[0]} is a foreign table, whose changes are in no log of this server"
    if differ:
        return "its partitions differ in their replica identity; give all of them the same"
    if identity == "n" or (identity in ("d", "i") and key is None):
        return (
            "it has no replica identity, so its updates and deletes can't be told apart (publishing them "
            f"would make them fail); add a primary key, or {_each(leaves, 'REPLICA IDENTITY FULL')}"
        )
    return ""


def _each(tables: Sequence[str], action: str) -> str:
    return "; ".join(f"ALTER TABLE {table} {action}" for table in tables)


def quoted(name: str) -> str:
    """As an identifier in SQL."""
    return '"' + name.replace('"', '""') + '"'


def _unreadable(table: str, unreadable: Sequence[tuple[str, str]], role: str) -> str:
    names = [f"{schema}.{name}" for schema, name in unreadable]
    partitions = "" if table in names else f"its partition{'s' if len(names) > 1 else ''} {', '.join(names)}"
    schemas = ", ".join(dict.fromkeys(schema for schema, _ in unreadable))
    return (
        f"no permission to read {partitions or 'it'}; "
        f"GRANT USAGE ON SCHEMA {schemas} TO {role}; GRANT SELECT ON {', '.join(names)} TO {role}"
    )


def of_name(shared: bool) -> str:
    """What is wrong with a table's name, if another one of the database is written alike; empty if nothing is."""
    if shared:
        return 'its name is that of another table too, as in "a.b".c and a."b.c"; rename one of them'
    return ""


def of_columns(columns: Sequence[Column], key: Sequence[str] | None, *, whole: bool) -> str:
    """What is wrong with its columns; empty if nothing is.

    whole: the identity holds all columns, and a generated one with them, on a server that minds.
    """
    names = {column.name for column in columns}
    if not names:
        return "it has no columns that could be replicated; leave it out of `tables`"
    generated = sorted(set(key or ()) - names)
    if generated or whole:
        which = f" ({generated[0]})" if generated else ""
        return (
            f"its replica identity has a generated column{which}, so publishing it would make its updates and deletes "
            "fail; give it a primary key without one, and REPLICA IDENTITY DEFAULT"
        )
    return ""


def not_utf8(what: str, where: str) -> Failure:
    """Of a value or a name."""
    fix = "A database with encoding SQL_ASCII has to hold UTF-8 to be replicated"
    return Failure(f"a {what} is not valid UTF-8", where, fix)
