"""Names of staging views and their columns, made from the source's names so that Spark, dbt and Jinja accept them.

A table or column keeps its name; a new one with the same name gets another. Pure; independent of the order of tables.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence

_MAX_LENGTH = 200  # with a hash and `.sql` well below the 255 bytes of file systems
_MIN_HASH_DIGITS = 6  # hexadecimal
RESERVED_COLUMNS = ("_row_key", "_checkpoint_id", "_columns")

# Spark's reserved words: `select keyword from sql_keywords() where reserved` under
# spark.sql.ansi.enforceReservedKeywords. Without that setting Spark allows all of them but true and false.
_RESERVED_WORDS = """
    all and any as authorization both call case cast check collate collation column constraint
    create cross current_date current_time current_timestamp current_user distinct else end escape
    except execute false fetch filter for foreign from full grant group having in inner intersect
    into is join lateral leading left natural not null offset on only or order outer overlaps
    primary recursive references right select session_user some sql table then time to trailing
    true union unique unknown user using when where with within
"""
_RESERVED = frozenset(_RESERVED_WORDS.split())

# A literal brace where Jinja would start an expression.
JINJA_BRACE = "{{ '{' }}"
# The names from the document to a field; a column of a table has one name.
FieldPath = tuple[str, ...]


def model_names(
    source: str, tables: Mapping[str, Sequence[str]], names_in_use: Mapping[str, tuple[str, str]] | None = None
) -> dict[str, str]:
    """Tables by the name of their model, `stg_<source>__<short>`.

    tables: the short names of each table; a new name is made from the first, a name in use may be from any.
    names_in_use: the source and table of each. A table whose name is taken, or is too long for a file, gets a hash
    suffix.
    """
    names_in_use = names_in_use or {}
    names_by_table = {
        table: [f"stg_{source}__{_to_identifier(short_name)}" for short_name in short_names]
        for table, short_names in tables.items()
    }
    names = {
        name: table
        for table in tables
        if (name := _find_name_in_use((source, table), names_by_table[table], names_in_use))
    }
    # Names must differ in more than case, for file systems and Spark.
    taken_names = {name.lower() for name in names_in_use}
    # Tables whose names need no change come first, so that no other table takes them.
    sorted_tables = sorted(tables, key=lambda table: (_to_identifier(tables[table][0]) != tables[table][0], table))
    for table in sorted_tables:
        if table not in names.values():
            name = next(name for name in _iter_candidates(names_by_table[table][0], table) if name not in taken_names)
            taken_names.add(name)
            names[name] = table
    return dict(sorted(names.items()))


def _iter_candidates(name: str, table: str) -> Iterator[str]:
    """The possible names of a table, the best first."""
    if len(name) <= _MAX_LENGTH:
        yield name
    digest = hashlib.sha256(table.encode()).hexdigest()
    yield from (f"{name[:_MAX_LENGTH]}_{digest[:digits]}" for digits in range(_MIN_HASH_DIGITS, len(digest) + 1))


def _find_name_in_use(
    table: tuple[str, str], generated_names: Sequence[str], names_in_use: Mapping[str, tuple[str, str]]
) -> str | None:
    """The generated name in use of a table; None if there is none."""
    candidates = [name for generated_name in generated_names for name in _iter_candidates(generated_name, table[1])]
    return next((name for name in candidates if names_in_use.get(name) == table), None)


def _to_identifier(name: str) -> str:
    return re.sub(r"[^a-z0-9_]", "_", name.lower())


def column_names(
    paths: Sequence[FieldPath], names_in_use: Mapping[str, FieldPath] | None = None
) -> dict[FieldPath, str]:
    """The name of each column, or of each field of a document by its path, joined by `_`.

    names_in_use: the path of each. Spark ignores case: a name that equals another or one of `RESERVED_COLUMNS`
    except for case gets a number suffix; among new names, lower case and top-level fields take precedence.
    """
    generated_names = {name: path for name, path in (names_in_use or {}).items() if _is_generated_name(name, path)}
    name_by_path = {path: name for name, path in reversed(generated_names.items())}
    names = {path: name_by_path[path] for path in paths if path in name_by_path}
    taken_names = {name.lower() for name in (*RESERVED_COLUMNS, *generated_names)}
    new_paths = [path for path in paths if path not in names]
    for path in sorted(new_paths, key=lambda path: (join_path(path) != join_path(path).lower(), len(path) > 1)):
        if join_path(path).lower() not in taken_names:
            names[path] = join_path(path)
            taken_names.add(join_path(path).lower())
    for path in new_paths:
        number = 2
        while path not in names:
            if f"{join_path(path)}_{number}".lower() not in taken_names:
                names[path] = f"{join_path(path)}_{number}"
                taken_names.add(names[path].lower())
            number += 1
    return {path: names[path] for path in paths}


def join_path(path: FieldPath) -> str:
    """The name of a column by its path."""
    return "_".join(path) or "_"


def _is_generated_name(name: str, path: FieldPath) -> bool:
    """Whether this is a generated name, not one that the user chose."""
    return (
        re.fullmatch(re.escape(join_path(path)) + r"(_\d+)?", name) is not None and name.lower() not in RESERVED_COLUMNS
    )


def quote_identifier(name: str) -> str:
    """`name` as a Spark SQL identifier, in backticks if needed."""
    if re.fullmatch(r"[a-z_][a-z0-9_]*", name) and name not in _RESERVED:
        return name
    return "`" + name.replace("`", "``") + "`"


def escape_jinja(text: str) -> str:
    """`text` escaped so that Jinja renders it unchanged."""
    return re.sub(r"\{(?=[{%#])", JINJA_BRACE, text)
