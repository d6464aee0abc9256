"""Spark's types as a definition's query selects them, and as its table stores them. Pure."""

import re
from collections.abc import Iterable, Mapping

_UNSTORABLE = re.compile(r"(?:^|[<,:])(?:(?:void|interval|geometry|geography)\b(?!:)|time\()")
_INNERMOST = re.compile(r"(\w+)<([^<>]*)>")
_FIELD = re.compile(r"[A-Za-z_]\w*:[^:]+", re.ASCII)
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_INTEGERS = {"int", "integer", "bigint", "long"}
_NOT_A_TEXT = re.compile(r"binary$|(map|array|struct)<")


def is_storable(column_type: str) -> bool:
    """Whether a table can have a type.

    No field may have the type void, as NULL and the elements of `array()` do, or one that Iceberg does not support, or
    a name that Spark cannot parse again. Each struct must have fields, and their names must differ by more than upper
    and lower case.
    """
    if _UNSTORABLE.search(column_type):
        return False
    rest = re.sub(r"\(.*?\)", "", column_type)
    for _ in range(column_type.count("<")):  # from the innermost types outwards
        inner = _INNERMOST.search(rest)
        if inner is None or (inner[1] == "struct" and not _are_fields(inner[2].split(","))):
            return False
        rest = rest.replace(inner[0], "...", 1)
    return True


def _are_fields(fields: list[str]) -> bool:
    names = {field.partition(":")[0].lower() for field in fields}
    return len(names) == len(fields) and all(map(_FIELD.fullmatch, fields))


def storage_type(column_type: str) -> str:
    """The type that Iceberg stores: it has no integers of fewer than 32 bits, and no collations."""
    return re.sub(r"\b(smallint|tinyint)\b(?!:)", "int", re.sub(r" collate \w+", "", column_type))


def is_wider(column_type: str, old_type: str) -> bool:
    """Whether a column can be changed to a type in place, because its values are written the same way in both.

    Iceberg also promotes FLOAT, whose values are written differently as DOUBLE.
    """
    if (old_type, column_type) == ("int", "bigint"):
        return True
    old, new = _DECIMAL.fullmatch(old_type), _DECIMAL.fullmatch(column_type)
    return old is not None and new is not None and old[2] == new[2] and int(old[1]) < int(new[1])


def has_text(column_type: str) -> bool:
    """Whether values of a type can be cast to text that identifies them, in the name of a bucket or a key."""
    return not _NOT_A_TEXT.match(column_type)


def are_integers(columns: Iterable[str], types: Mapping[str, str]) -> bool:
    """Whether columns are integers, by the types of a table. The text of an integer never changes; that of a timestamp
    or a float depends on settings and on Java.
    """
    types_by_name = {name.lower(): column_type for name, column_type in types.items()}
    return all(types_by_name.get(name.lower()) in _INTEGERS for name in columns)
