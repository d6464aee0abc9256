"""Casts the text of a column, as Postgres prints it, to a value of Spark. Pure.

The SQL fails for text that it can't read, since the column may have another type by now; it may round a number with
more digits, of which the catalog sync warns. Values that Spark can't represent become NULL: NaN in a decimal, infinity,
timestamps from year 294247 on, and BC, whose years Spark counts differently; the view keeps their texts. Types without
an equivalent in Spark stay text.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ingest.codegen.view_sql import ColumnReader

_MAX_PRECISION = 38
_BY_NAME = ColumnReader(())

# Types whose every value fits.
_EXACT = {
    "boolean": "boolean",
    "smallint": "smallint",
    "integer": "int",
    "bigint": "bigint",
    "oid": "bigint",
}
_NO_TIMESTAMP = "infinity, BC and years from 294247 on"
# Those that a macro reads (macros/casts/pg.sql), and what it makes NULL.
_MACROS = {
    "real": ("pg_real", ""),
    "double precision": ("pg_double", ""),
    "date": ("pg_date", "infinity and BC"),
    "timestamp without time zone": ("pg_timestamp_ntz", _NO_TIMESTAMP),
    "timestamp with time zone": ("pg_timestamp", _NO_TIMESTAMP),
    "bytea": ("pg_bytea", ""),
}


@dataclass(frozen=True)
class Cast:
    """The SQL of a typed column, as text for Jinja. not_held: the values that it makes NULL; empty: none."""

    sql: str
    not_held: str = ""


def cast(column: str, postgres_type: str, domains: Mapping[str, str], reader: ColumnReader = _BY_NAME) -> Cast:
    """What `core.row_state` has of `column`, typed.

    postgres_type: as format_type writes it. domains: the type below each domain, written likewise. reader: how the view
    reads its columns.
    """
    base = postgres_type
    while base in domains:
        base = domains[base]
    kind = re.sub(r"\(.*\)", "", base)
    text = reader.text(column)
    if kind in _EXACT:
        return Cast(f"cast({text} as {_EXACT[kind]})")
    if kind in _MACROS:
        macro, not_held = _MACROS[kind]
        return Cast(f"{{{{ tidemark.{macro}({reader.argument((column,))}) }}}}", not_held)
    if decimal := _decimal(base):
        return Cast(f"cast(nullif({text}, 'NaN') as {decimal})", "NaN")
    return Cast(text)


def _decimal(postgres_type: str) -> str | None:
    """The decimal that holds all numbers of a `numeric(p,s)`; None if it is none, or too large."""
    match = re.fullmatch(r"numeric\((\d+),(-?\d+)\)", postgres_type)
    if not match:
        return None
    precision, scale = int(match[1]), int(match[2])
    # A scale may be below 0 (it rounds left of the point) or above the precision (0.00ppp).
    digits = precision - scale if scale < 0 else max(precision, scale)
    return f"decimal({digits}, {max(scale, 0)})" if digits <= _MAX_PRECISION else None
