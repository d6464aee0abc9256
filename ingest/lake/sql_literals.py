"""Python values as Spark SQL literals, for statements that do not accept parameters."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any


def literal(value: Any) -> str:
    """`value` as Spark SQL.

    None, bool, int, str, aware datetime, lists and (as named structs) mappings.
    """
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"{value}L" if -(1 << 63) < value < 1 << 63 else f"{value}"
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    if isinstance(value, datetime):
        moment = value.astimezone(timezone.utc).strftime("%Y-%m-%d %H:%M:%S.%f")
        return f"TIMESTAMP '{moment}+00:00'"
    if isinstance(value, Mapping):
        inner = ", ".join(f"{literal(str(key))}, {literal(item)}" for key, item in value.items())
        return f"named_struct({inner})"
    if isinstance(value, Sequence):
        return f"array({', '.join(map(literal, value))})"
    raise TypeError(f"no literal for {type(value).__name__}")
