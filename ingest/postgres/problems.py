"""What keeps a table from being replicated, and what to do about it. Pure."""

from collections.abc import Sequence

from ingest.errors import Failure
from ingest.lake.tables import Column


def of_table(
    table: str,
    readable: bool,
    unlogged: Sequence[str],
    foreign: Sequence[str],
    identity: str,
    key: Sequence[str] | None,
    *,
    differ: bool,
) -> str:
    """What is wrong with a table as a whole; empty if nothing is.

    All names are quoted. unlogged, foreign: which of its partitions are that; unlogged may name the table itself.
    identity: the letter of its leaves, or its own if it has none; differ: whether they have several, or several keys.
    """
    if not readable:
        return f"no permission to read it; GRANT USAGE ON SCHEMA, and GRANT SELECT ON {table}, to the role"
    if unlogged:
        which = "it" if unlogged[0] == table else f"its partition {unlogged[0]}"
        return f"{which} is unlogged, so its changes are in no log; ALTER TABLE {unlogged[0]} SET LOGGED"
    if foreign:
        return f"its partition {foreign[0]} is a foreign table, whose changes are in no log of this server"
    if differ:
        return "its partitions differ in their replica identity; give all of them the same"
    if identity == "n" or (identity in ("d", "i") and key is None):
        return (
            "it has no replica identity, so its updates and deletes can't be told apart (publishing them "
            f"would make them fail); add a primary key, or ALTER TABLE {table} REPLICA IDENTITY FULL"
        )
    return ""


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
