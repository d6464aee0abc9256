"""Names of staging views and their columns: the source's, as Spark, dbt and Jinja can take them.

A name in use stays with its table, or its column; a newcomer gets another one. Pure, and the same for the same tables
in any order.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence

_LONGEST = 200  # with a hash and `.sql` well below the 255 that file systems take
_HASH = 6  # hexadecimal digits of a hash at least
RESERVED_COLUMNS = ("_row_key", "_checkpoint_id", "_columns")

# Spark's reserved words: `select keyword from sql_keywords() where reserved` under
# spark.sql.ansi.enforceReservedKeywords. Otherwise it allows all of them but true and false.
_RESERVED_WORDS = """
    all and any as authorization both call case cast check collate collation column constraint
    create cross current_date current_time current_timestamp current_user distinct else end escape
    except execute false fetch filter for foreign from full grant group having in inner intersect
    into is join lateral leading left natural not null offset on only or order outer overlaps
    primary recursive references right select session_user some sql table then time to trailing
    true union unique unknown user using when where with within
"""
_RESERVED = frozenset(_RESERVED_WORDS.split())

# How a view has a brace that Jinja would take for its own.
JINJA_BRACE = "{{ '{' }}"
# The names on the way to a field: a column of a table has one.
FieldPath = tuple[str, ...]


def model_names(
    source: str, tables: Mapping[str, Sequence[str]], used: Mapping[str, tuple[str, str]] | None = None
) -> dict[str, str]:
    """Tables by the name of their model, `stg_<source>__<short>`.

    tables: what each is called in short; a new name is made of the first one, a name in use may be of any. used: the
    source and table of each name in use. A table whose name another one has gets a hash behind it, and so does one that
    no file could be called.
    """
    used = used or {}
    shorts = {table: [f"stg_{source}__{_to_identifier(each)}" for each in named] for table, named in tables.items()}
    names = {name: table for table in tables if (name := _name_in_use((source, table), shorts[table], used))}
    # No file system and no Spark is asked to tell names apart by capitals.
    taken = {name.lower() for name in used}
    # Those whose names need no change come first: nothing takes theirs.
    ordered = sorted(tables, key=lambda table: (_to_identifier(tables[table][0]) != tables[table][0], table))
    for table in ordered:
        if table not in names.values():
            name = next(each for each in _candidates(shorts[table][0], table) if each not in taken)
            taken.add(name)
            names[name] = table
    return dict(sorted(names.items()))


def _candidates(name: str, table: str) -> Iterator[str]:
    """What a table may be called, the best first."""
    if len(name) <= _LONGEST:
        yield name
    digest = hashlib.sha256(table.encode()).hexdigest()
    yield from (f"{name[:_LONGEST]}_{digest[:digits]}" for digits in range(_HASH, len(digest) + 1))


def _name_in_use(table: tuple[str, str], names: Sequence[str], used: Mapping[str, tuple[str, str]]) -> str | None:
    """The name in use of a table; a view that a person has called otherwise is not meant."""
    candidates = [name for short in names for name in _candidates(short, table[1])]
    return next((name for name in candidates if used.get(name) == table), None)


def _to_identifier(name: str) -> str:
    return re.sub(r"[^a-z0-9_]", "_", name.lower())


def column_names(paths: Sequence[FieldPath], used: Mapping[str, FieldPath] | None = None) -> dict[FieldPath, str]:
    """The view's name of each column, or field of a document by its path: its own, parts joined by `_`.

    used: what each name in use shows. A name that differs from another, or from `OURS`, by capitals only, which Spark
    doesn't tell apart, gets a number behind it; of new ones one in lower case stays, and one of the document itself.
    """
    in_use = {name: path for name, path in (used or {}).items() if _is_generated_name(name, path)}
    kept = {path: name for name, path in reversed(in_use.items())}
    names = {path: kept[path] for path in paths if path in kept}
    taken = {name.lower() for name in (*RESERVED_COLUMNS, *in_use)}
    new = [path for path in paths if path not in names]
    for path in sorted(new, key=lambda path: (join_path(path) != join_path(path).lower(), len(path) > 1)):
        if join_path(path).lower() not in taken:
            names[path] = join_path(path)
            taken.add(join_path(path).lower())
    for path in new:
        number = 2
        while path not in names:
            if f"{join_path(path)}_{number}".lower() not in taken:
                names[path] = f"{join_path(path)}_{number}"
                taken.add(names[path].lower())
            number += 1
    return {path: names[path] for path in paths}


def join_path(path: FieldPath) -> str:
    """The name of a column by its path."""
    return "_".join(path) or "_"


def _is_generated_name(name: str, path: FieldPath) -> bool:
    """Whether a column has that name from here, not from a person."""
    return (
        re.fullmatch(re.escape(join_path(path)) + r"(_\d+)?", name) is not None and name.lower() not in RESERVED_COLUMNS
    )


def quote_identifier(name: str) -> str:
    """`name` as Spark SQL has it, in backticks if it needs them."""
    if re.fullmatch(r"[a-z_][a-z0-9_]*", name) and name not in _RESERVED:
        return name
    return "`" + name.replace("`", "``") + "`"


def escape_jinja(text: str) -> str:
    """`text` so that Jinja renders it as it is."""
    return re.sub(r"\{(?=[{%#])", JINJA_BRACE, text)
