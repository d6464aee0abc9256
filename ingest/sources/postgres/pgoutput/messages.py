"""Parses the rare messages of pgoutput (protocol version 1): Relation, Truncate, Message.

Also describes relations: `Relation` is what the stream sends; `TableIdentity` is what only the catalog has, asked of a
`RelationRegistry`. Raises `Failure` for a truncated message.
"""

import struct
from dataclasses import dataclass
from typing import Any, Protocol

from ingest.common.errors import Failure
from ingest.sources.postgres.text_encoding import utf8_failure

_RELATION_HEAD = struct.Struct(">cH")
_COLUMN_TAIL = struct.Struct(">Ii")
_MESSAGE_HEAD = struct.Struct(">BQ")
_TRUNCATE_HEAD = struct.Struct(">IB")


@dataclass(frozen=True)
class RelationColumn:
    """A column of a Relation message. identity: it is part of the replica identity."""

    name: str
    type_oid: int
    typmod: int
    identity: bool


@dataclass(frozen=True)
class Relation:
    """A Relation message: the shape of a table or partition. identity: letter of the replica identity (d, i, f, n)."""

    oid: int
    schema: str
    name: str
    identity: str
    columns: tuple[RelationColumn, ...]

    @property
    def column_names(self) -> tuple[str, ...]:
        """The published columns' names in column order."""
        return tuple(column.name for column in self.columns)

    @property
    def identity_columns(self) -> tuple[str, ...]:
        """The columns of the replica identity in column order; under FULL all columns."""
        return tuple(column.name for column in self.columns if column.identity)


@dataclass(frozen=True)
class TableIdentity:
    """The table of a relation, as the catalog has it.

    table_name, table_id: of the table; for a partition, of its root. partition_id: oid of the relation itself; root_id:
    oid of the table. key_columns: in key order; None: no key, so the row key has all values. has_renamed_columns: a
    column may have been renamed since the Relation message, or renamed and renamed back.
    """

    table_id: str
    table_name: str
    partition_id: int
    root_id: int
    key_columns: tuple[str, ...] | None
    has_renamed_columns: bool = False

    @property
    def is_whole_table(self) -> bool:
        """The relation is its whole table, so that a TRUNCATE event of it has no partition_id."""
        return self.partition_id == self.root_id


class RelationRegistry(Protocol):
    """Describes the table of a relation. Called for every Relation message, in order."""

    def describe(self, relation: Relation, *, again: bool = False) -> TableIdentity:
        """The table that `relation` is, or is a partition of.

        again: the Relation message was received earlier, so the name is read from the catalog. Under identity `d` and
        `i`, key_columns are a permutation of `relation.identity_columns`; None if there are none.
        """
        ...


@dataclass(frozen=True)
class RelationVersion:
    """A relation from one point of the stream on. key: the column indexes of its key in key order."""

    relation: Relation
    info: TableIdentity
    key: tuple[int, ...]


def make_version(relation: Relation, info: TableIdentity) -> RelationVersion:
    """`relation` with the indexes of its key. Raises `Failure` if the catalog's key does not fit the relation."""
    names = relation.column_names
    if info.key_columns is None and relation.identity not in ("d", "i"):
        # Sorted by name, since the partitions of a table may differ in column order.
        return RelationVersion(relation, info, tuple(sorted(range(len(names)), key=lambda place: names[place])))
    key = info.key_columns or ()
    strict = relation.identity in ("d", "i")
    fits = set(key) == set(relation.identity_columns) if strict else set(key) <= set(names)
    if not fits:
        raise Failure(
            f"the key in the catalog ({', '.join(key) or 'none'}) differs from the key in the stream "
            f"({', '.join(relation.identity_columns)})",
            info.table_name,
            "The table was altered after this change; run `tidemark resnapshot` for it",
        )
    return RelationVersion(relation, info, tuple(map(names.index, key)) or tuple(range(len(names))))


def parse_relation(message: bytes) -> Relation:
    """Parse a Relation message, including its type byte."""
    (oid,) = _unpack(_OID, message, 1)
    schema, offset = _string(message, 5)
    name, offset = _string(message, offset)
    identity, count = _unpack(_RELATION_HEAD, message, offset)
    offset += _RELATION_HEAD.size
    columns = []
    for _ in range(count):
        (flags,) = _unpack(_BYTE, message, offset)
        column, offset = _string(message, offset + 1)
        type_oid, typmod = _unpack(_COLUMN_TAIL, message, offset)
        offset += _COLUMN_TAIL.size
        columns.append(RelationColumn(column, type_oid, typmod, bool(flags & 1)))
    # The server sends the schema pg_catalog as an empty name.
    return Relation(oid, schema or "pg_catalog", name, identity.decode(), tuple(columns))


def parse_truncate(message: bytes) -> tuple[int, ...]:
    """The oids of a Truncate message, in its order."""
    count, _flags = _unpack(_TRUNCATE_HEAD, message, 1)
    oids: tuple[int, ...] = _unpack(struct.Struct(f">{count}I"), message, 1 + _TRUNCATE_HEAD.size)
    return oids


def parse_message(message: bytes) -> tuple[bool, int, str, bytes]:
    """A logical message: transactional, its LSN, prefix, content."""
    flags, lsn = _unpack(_MESSAGE_HEAD, message, 1)
    prefix, offset = _string(message, 1 + _MESSAGE_HEAD.size)
    (length,) = _unpack(_OID, message, offset)
    content = message[offset + 4 : offset + 4 + length]
    if len(content) != length:
        raise _truncated_error(message)
    return bool(flags & 1), lsn, prefix, content


_OID = struct.Struct(">I")
_BYTE = struct.Struct(">B")


def _unpack(form: struct.Struct, message: bytes, offset: int) -> tuple[Any, ...]:
    if offset + form.size > len(message):
        raise _truncated_error(message)
    return form.unpack_from(message, offset)


def _string(message: bytes, offset: int) -> tuple[str, int]:
    end = message.find(b"\0", offset)
    if end < 0:
        raise _truncated_error(message)
    try:
        return message[offset:end].decode(), end + 1
    except UnicodeDecodeError as error:
        raise utf8_failure("name", "the replication stream") from error


def _truncated_error(message: bytes) -> Failure:
    return Failure(
        f"a message of type {message[:1]!r} ends too early",
        "the replication stream",
        "Start again; if the error returns, the server sends another version of pgoutput",
    )
