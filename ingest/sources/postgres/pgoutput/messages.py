"""The rare messages of pgoutput (protocol version 1), one by one: Relation, Truncate, Message.

Also what is known of a relation: what the stream says (`Relation`) and what only the catalogue
knows (`TableInfo`, asked of a `Registry`). Pure; a message that ends too early raises `Failure`.
"""

import struct
from dataclasses import dataclass
from typing import Any, Protocol

from ingest.common.errors import Failure
from ingest.sources.postgres.catalog import eligibility

_RELATION_HEAD = struct.Struct(">cH")
_COLUMN_TAIL = struct.Struct(">Ii")
_MESSAGE_HEAD = struct.Struct(">BQ")
_TRUNCATE_HEAD = struct.Struct(">IB")


@dataclass(frozen=True)
class Column:
    """A column as the stream describes it; `identity`: part of the replica identity."""

    name: str
    type_oid: int
    typmod: int
    identity: bool


@dataclass(frozen=True)
class Relation:
    """A Relation message: one shape of a table, or of a leaf partition.

    identity: the replica identity's letter (`d`, `i`, `f`, `n`). Column order is the table's, not
    the key's.
    """

    oid: int
    schema: str
    name: str
    identity: str
    columns: tuple[Column, ...]

    @property
    def column_names(self) -> tuple[str, ...]:
        """The published columns' names in column order."""
        return tuple(column.name for column in self.columns)

    @property
    def identity_columns(self) -> tuple[str, ...]:
        """The columns of the replica identity, in column order (under FULL all)."""
        return tuple(column.name for column in self.columns if column.identity)


@dataclass(frozen=True)
class TableInfo:
    """What the catalogue knows of a relation and the stream doesn't.

    table_name, table_id: of the table, for a leaf partition of its root. partition_id: oid of the
    relation itself; root_id: of its table. key_columns: in key order; None: there is no key, the row key is all values.
    other_names: a column may have another name by now than in the stream, or had it in between.
    """

    table_id: str
    table_name: str
    partition_id: int
    root_id: int
    key_columns: tuple[str, ...] | None
    other_names: bool = False

    @property
    def whole(self) -> bool:
        """The relation is all of its table, so that a TRUNCATE of it is landed without a partition_id."""
        return self.partition_id == self.root_id


class Registry(Protocol):
    """Answers what the stream doesn't tell of a relation, at every Relation message, in order."""

    def describe(self, relation: Relation, *, again: bool = False) -> TableInfo:
        """The table that `relation` is, or is a leaf of.

        again: the stream said it a while ago, so the table's name is the one that it has now.
        Under identity `d` and `i`, key_columns are a permutation of `relation.identity_columns` (None
        if there are none).
        """
        ...


@dataclass(frozen=True)
class Version:
    """A relation as of some place in the stream, with the key's column numbers in key order."""

    relation: Relation
    info: TableInfo
    key: tuple[int, ...]


def version(relation: Relation, info: TableInfo) -> Version:
    """`relation` with its key looked up; `Failure` if the catalogue's key is of another one."""
    names = relation.column_names
    if info.key_columns is None and relation.identity not in ("d", "i"):
        # By name: the leaves of a partitioned table have their columns in orders of their own.
        return Version(relation, info, tuple(sorted(range(len(names)), key=lambda place: names[place])))
    key = info.key_columns or ()
    strict = relation.identity in ("d", "i")
    fits = set(key) == set(relation.identity_columns) if strict else set(key) <= set(names)
    if not fits:
        raise Failure(
            f"the key in the catalogue ({', '.join(key) or 'none'}) is not that of the stream "
            f"({', '.join(relation.identity_columns)})",
            info.table_name,
            "It was altered after the change at hand; take a new snapshot of the table",
        )
    return Version(relation, info, tuple(map(names.index, key)) or tuple(range(len(names))))


def parse_relation(message: bytes) -> Relation:
    """A Relation message, its type byte included."""
    (oid,) = _unpack(_OID, message, 1)
    schema, at = _string(message, 5)
    name, at = _string(message, at)
    identity, count = _unpack(_RELATION_HEAD, message, at)
    at += _RELATION_HEAD.size
    columns = []
    for _ in range(count):
        (flags,) = _unpack(_BYTE, message, at)
        column, at = _string(message, at + 1)
        type_oid, typmod = _unpack(_COLUMN_TAIL, message, at)
        at += _COLUMN_TAIL.size
        columns.append(Column(column, type_oid, typmod, bool(flags & 1)))
    # The server sends its own catalogue's schema as an empty name.
    return Relation(oid, schema or "pg_catalog", name, identity.decode(), tuple(columns))


def parse_truncate(message: bytes) -> tuple[int, ...]:
    """The oids that a Truncate message names, in its order."""
    count, _flags = _unpack(_TRUNCATE_HEAD, message, 1)
    oids: tuple[int, ...] = _unpack(struct.Struct(f">{count}I"), message, 1 + _TRUNCATE_HEAD.size)
    return oids


def parse_message(message: bytes) -> tuple[bool, int, str, bytes]:
    """A logical message: transactional, its LSN, prefix, content."""
    flags, lsn = _unpack(_MESSAGE_HEAD, message, 1)
    prefix, at = _string(message, 1 + _MESSAGE_HEAD.size)
    (length,) = _unpack(_OID, message, at)
    content = message[at + 4 : at + 4 + length]
    if len(content) != length:
        raise _cut_short(message)
    return bool(flags & 1), lsn, prefix, content


_OID = struct.Struct(">I")
_BYTE = struct.Struct(">B")


def _unpack(form: struct.Struct, message: bytes, at: int) -> tuple[Any, ...]:
    if at + form.size > len(message):
        raise _cut_short(message)
    return form.unpack_from(message, at)


def _string(message: bytes, at: int) -> tuple[str, int]:
    end = message.find(b"\0", at)
    if end < 0:
        raise _cut_short(message)
    try:
        return message[at:end].decode(), end + 1
    except UnicodeDecodeError as error:
        raise eligibility.not_utf8("name", "the replication stream") from error


def _cut_short(message: bytes) -> Failure:
    return Failure(
        f"a message of type {message[:1]!r} ends too early",
        "the replication stream",
        "Start again; if it comes back, the server speaks another version of pgoutput",
    )
