"""Names of staging views and their columns: the source's, as Spark, dbt and Jinja can take them.

Pure, and the same for the same tables in any order.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence

_LONGEST = 200  # with a hash and `.sql` well below the 255 that file systems take
OURS = ("_row_key", "_checkpoint_id", "_columns")

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


def model_names(source: str, tables: Mapping[str, str]) -> dict[str, str]:
    """Tables by the name of their model, `stg_<source>__<short>`. tables: what each is called in short.

    A table whose name another has got already gets a hash behind it, and so does one that no file could be called.
    """
    # Those whose names need no change come first: nothing takes theirs.
    ordered = sorted(tables, key=lambda table: (_plain(tables[table]) != tables[table], table))
    names: dict[str, str] = {}
    for table in ordered:
        name = f"stg_{source}__{_plain(tables[table])}"
        if name in names or len(name) > _LONGEST:
            name = f"{name[:_LONGEST]}_" + hashlib.sha256(table.encode()).hexdigest()[:6]
        names[name] = table
    return dict(sorted(names.items()))


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9_]", "_", name.lower())


def column_names(columns: Sequence[str]) -> dict[str, str]:
    """The view's name of each column: its own.

    One that differs from another, or from `OURS`, by capitals only, which Spark doesn't tell apart,
    gets a number behind it; a name in lower case stays.
    """
    taken = set(OURS)
    names = {}
    for column in sorted(columns, key=lambda name: name != name.lower()):
        if column.lower() not in taken:
            names[column] = column
            taken.add(column.lower())
    for column in columns:
        number = 2
        while column not in names:
            if f"{column}_{number}".lower() not in taken:
                names[column] = f"{column}_{number}"
                taken.add(names[column].lower())
            number += 1
    return {column: names[column] for column in columns}


def quoted(name: str) -> str:
    """`name` as Spark SQL has it, in backticks if it needs them."""
    if re.fullmatch(r"[a-z_][a-z0-9_]*", name) and name not in _RESERVED:
        return name
    return "`" + name.replace("`", "``") + "`"


def jinja_safe(text: str) -> str:
    """`text` so that Jinja renders it as it is."""
    return re.sub(r"\{(?=[{%#])", "{{ '{' }}", text)
