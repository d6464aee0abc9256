"""Reads tables from the source's catalog: keys, columns, partitions, and why a table can't be replicated.

Read-only but for `emit_marker`. Each call reads a consistent state of the catalog, which may be later than the position
of a stream. Connections must be in autocommit mode and outside of a transaction.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import psycopg

from ingest.common.errors import Failure
from ingest.common.records import table_id
from ingest.lake.source_tables import Column, Partition, SourceTable
from ingest.positions.position import parse_lsn
from ingest.sources.postgres.catalog import eligibility
from ingest.sources.postgres.postgres_connection import Connection
from ingest.sources.postgres.text_encoding import utf8_failure


@dataclass(frozen=True)
class CatalogTable:
    """A table of the catalog: a plain table, which is its own only partition, or the root of a partitioned table.

    identity: the letter of the replica identity. key_columns: in key order; None: no key. attributes: the highest
    column number so far. columns_with_default: attnums of columns that were added with a default. dropped_attnums:
    attnums of dropped columns. key_id: oid of the primary key's constraint. column_names: the columns of each partition
    in its order, including generated columns. partition_sizes: each partition with its size in blocks, and in bytes
    including TOAST. unlogged: the table or a partition is unlogged. problem: why it can't be replicated, and what to
    do; empty if it can.
    """

    oid: int
    schema: str
    name: str
    identity: str
    key_columns: tuple[str, ...] | None
    columns: tuple[Column, ...]
    partitions: tuple[Partition, ...]
    partition_sizes: tuple[tuple[Partition, int, int], ...]
    attributes: int
    columns_with_default: frozenset[int]
    is_owned: bool
    dropped_attnums: frozenset[int] = frozenset()
    key_id: int | None = None
    column_names: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    unlogged: bool = False
    problem: str = ""

    @property
    def table_name(self) -> str:
        """`schema.name`, unquoted."""
        return f"{self.schema}.{self.name}"

    def table_id(self, source: str) -> str:
        """The id of the present generation."""
        return table_id(source, self.oid, self.table_name, self.key_columns, self.identity)

    def to_source_table(self, source: str) -> SourceTable:
        """The row of raw.source_tables that registers the table."""
        return SourceTable(
            source,
            self.table_id(source),
            self.table_name,
            self.oid,
            self.identity,
            self.key_columns,
            self.columns,
            self.partitions,
            attributes=self.attributes,
            key_id=self.key_id,
        )


# From the first phase of DETACH ... CONCURRENTLY on, a partition counts as a table of its own.
_TABLES_QUERY = """
SELECT c.oid::bigint, n.nspname, c.relname, c.relkind::text, c.relreplident::text,
       has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT'),
       pg_has_role(c.relowner, 'USAGE'), c.relpersistence::text, c.relnatts::int,
       EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND NOT a.attisdropped AND a.attgenerated <> '')
         AND current_setting('server_version_num')::int >= 180000,
       concat(n.nspname, c.relname) LIKE '%%.%%' AND EXISTS (
           SELECT FROM pg_class d JOIN pg_namespace m ON m.oid = d.relnamespace
           WHERE d.oid <> c.oid AND d.relkind IN ('r', 'p') AND NOT d.relispartition
             AND concat(m.nspname, '.', d.relname) = concat(n.nspname, '.', c.relname)),
       array(SELECT a.attnum::int FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND a.attisdropped),
       quote_ident(current_user)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND c.relpersistence <> 't'
  AND (NOT c.relispartition OR EXISTS (SELECT FROM pg_inherits i WHERE i.inhrelid = c.oid AND i.inhdetachpending))
  AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname !~ '^pg_toast'
  AND (%(oids)s::oid[] IS NULL OR c.oid = ANY (%(oids)s::oid[]))
ORDER BY n.nspname, c.relname
"""

# COPY outputs a stored generated column, but pgoutput does not (from 18 on only if the publication says so): Tidemark
# omits it from both, with all versions. A staging view can compute it.
_COLUMNS_QUERY = """
SELECT a.attrelid::bigint, a.attname, a.attnum::int, format_type(a.atttypid, a.atttypmod), a.xmin::text::bigint
FROM pg_attribute a
WHERE a.attrelid = ANY (%(oids)s::oid[]) AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
ORDER BY a.attrelid, a.attnum
"""

# Primary key and replica identity index of each table, columns in key order. A deferrable one can't be the replica
# identity.
_KEYS_QUERY = """
SELECT i.indrelid::bigint, i.indisprimary, i.indisreplident,
       (SELECT c.oid::bigint FROM pg_constraint c
        WHERE c.conindid = i.indexrelid AND c.conrelid = i.indrelid AND c.contype = 'p'),
       array(SELECT a.attname::text
             FROM unnest(i.indkey[0:i.indnkeyatts - 1]) WITH ORDINALITY AS k (attnum, place)
             JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
             ORDER BY k.place)
FROM pg_index i
WHERE i.indrelid = ANY (%(oids)s::oid[]) AND i.indisvalid AND i.indimmediate
  AND (i.indisprimary OR i.indisreplident)
"""

# Reads pg_inherits, since functions such as pg_partition_tree do not use the transaction's snapshot. Waits for no lock.
_PARTITIONS_QUERY = """
WITH RECURSIVE tree (root, oid, attached) AS (
    SELECT r.oid, r.oid, '' FROM unnest(%(oids)s::oid[]) AS r (oid)
    UNION ALL
    SELECT t.root, i.inhrelid, ltrim(t.attached || ' ' || i.xmin)
    FROM tree t
    JOIN pg_class p ON p.oid = t.oid AND p.relkind = 'p'
    JOIN pg_inherits i ON i.inhparent = t.oid AND NOT i.inhdetachpending
)
SELECT t.root::bigint, c.oid::bigint, n.nspname, c.relname, c.relkind::text, c.relpersistence::text,
       c.relreplident::text, c.relfilenode::bigint, t.attached,
       has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT'),
       array(SELECT a.attname::text FROM pg_attribute a WHERE a.attrelid = c.oid AND a.atthasmissing),
       array(SELECT a.attname::text FROM pg_attribute a
             WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum)
FROM tree t
JOIN pg_class c ON c.oid = t.oid AND c.relkind <> 'p'
JOIN pg_namespace n ON n.oid = c.relnamespace
ORDER BY t.root, c.oid
"""

_ROOT_QUERY = """
WITH RECURSIVE above (oid, height) AS (
    SELECT %(oid)s::oid, 0
    UNION ALL
    SELECT i.inhparent, a.height + 1
    FROM above a
    JOIN pg_class c ON c.oid = a.oid AND c.relispartition
    JOIN pg_inherits i ON i.inhrelid = a.oid AND NOT i.inhdetachpending
)
SELECT oid::bigint FROM above ORDER BY height DESC LIMIT 1
"""

# Reads the current size, not that of the transaction's snapshot; waits for sessions that alter a partition.
_SIZES_QUERY = """
SELECT oid::bigint, coalesce(pg_relation_size(oid), 0) / current_setting('block_size')::bigint,
       coalesce(pg_table_size(oid), 0)
FROM unnest(%(oids)s::oid[]) AS l (oid)
"""


class _PartitionRow(NamedTuple):
    """A row of _PARTITIONS_QUERY without the root."""

    oid: int
    schema: str
    name: str
    kind: str
    persistence: str
    identity: str
    storage: int
    attached: str
    readable: bool
    columns_with_default: Sequence[str]
    column_names: Sequence[str]

    @property
    def quoted(self) -> str:
        return f"{eligibility.quote_identifier(self.schema)}.{eligibility.quote_identifier(self.name)}"


@dataclass
class _CatalogRows:
    """The catalog's rows about one table, without sizes.

    keys: the columns of the root's primary key (`p`) and of its replica identity index (`i`). partition_keys: the
    columns of each partition's replica identity index.
    """

    root: tuple[Any, ...]
    partitions: list[_PartitionRow]
    columns: list[Column]
    keys: dict[str, tuple[str, ...]]
    partition_keys: dict[int, tuple[str, ...]]
    key_id: int | None = None


def read_tables(connection: Connection, selects: Callable[[str], bool]) -> list[CatalogTable]:
    """The tables whose `schema.name` is selected, ordered by name."""
    with _consistent_catalog(connection):
        roots = connection.execute(_TABLES_QUERY, {"oids": None}).fetchall()
        rows = _read_catalog_rows(connection, [root for root in roots if selects(f"{root[1]}.{root[2]}")])
    return _build_tables(connection, rows)


def read_table(connection: Connection, relation: int) -> CatalogTable | None:
    """The table with the oid `relation`, or the root of the partition with it; None: there is none."""
    # A commit is in the log before other sessions see it. The session that altered the relation holds its lock until
    # then, and pg_relation_size waits for that lock.
    connection.execute("SELECT pg_relation_size(%s::oid)", [relation])
    with _consistent_catalog(connection):
        ((root,),) = connection.execute(_ROOT_QUERY, {"oid": relation}).fetchall()
        rows = _read_catalog_rows(connection, connection.execute(_TABLES_QUERY, {"oids": [root]}).fetchall())
    return next(iter(_build_tables(connection, rows)), None)


@contextmanager
def _consistent_catalog(connection: Connection) -> Iterator[None]:
    """All queries within it see one snapshot of the catalog: a DDL statement as a whole or not at all."""
    try:
        with connection.transaction():
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            yield
    except psycopg.errors.CharacterNotInRepertoire as error:
        raise utf8_failure("name", f"the catalog of database {connection.info.dbname}") from error


def _read_catalog_rows(connection: Connection, roots: Sequence[tuple[Any, ...]]) -> list[_CatalogRows]:
    tables = {root[0]: _CatalogRows(root, [], [], {}, {}) for root in roots}
    table_of_partition: dict[int, _CatalogRows] = {}
    oids = {"oids": list(tables)}
    for oid, *partition in connection.execute(_PARTITIONS_QUERY, oids):
        row = _PartitionRow(*partition)
        tables[oid].partitions.append(row)
        table_of_partition[row.oid] = tables[oid]
    for oid, *column in connection.execute(_COLUMNS_QUERY, oids):
        tables[oid].columns.append(Column(*column))
    all_oids = {"oids": [*{*tables, *table_of_partition}]}
    for oid, is_primary, is_identity, key_id, names in connection.execute(_KEYS_QUERY, all_oids):
        for letter, applies in (("p", is_primary), ("i", is_identity)):
            if applies and oid in tables:
                tables[oid].keys[letter] = tuple(names)
        if is_primary and oid in tables:
            tables[oid].key_id = key_id
        if is_identity and oid in table_of_partition:
            table_of_partition[oid].partition_keys[oid] = tuple(names)
    return list(tables.values())


def _build_tables(connection: Connection, tables: Sequence[_CatalogRows]) -> list[CatalogTable]:
    oids = [partition.oid for table in tables for partition in table.partitions]
    rows = connection.execute(_SIZES_QUERY, {"oids": oids}).fetchall()
    sizes = {oid: (blocks, size) for oid, blocks, size in rows}
    return [_build_table(table, sizes) for table in tables]


def _replica_identity(rows: _CatalogRows) -> tuple[str, tuple[str, ...] | None, bool]:
    """The replica identity's letter, its key, and whether the partitions differ in one of them.

    ALTER TABLE ... REPLICA IDENTITY on a root does not change its partitions, whose identity is the one that counts. If
    the partitions' key is not also one of the root's, rows of two partitions may have the same key values.
    """
    letters = {partition.identity for partition in rows.partitions} or {rows.root[4]}
    letter = min(letters)
    if letter != "i":
        return letter, rows.keys.get("p"), len(letters) > 1
    root_keys = [rows.keys[kind] for kind in ("i", "p") if kind in rows.keys]
    partition_keys = {frozenset(rows.partition_keys.get(partition.oid, ())) for partition in rows.partitions}
    partition_keys = partition_keys or set(map(frozenset, root_keys[:1]))
    key = next((key for key in root_keys if partition_keys == {frozenset(key)}), None)
    return letter, key, len(letters) > 1 or len(partition_keys) > 1


def _build_table(rows: _CatalogRows, sizes: dict[int, tuple[int, int]]) -> CatalogTable:
    oid, schema, name, kind, _, readable, owned, persistence, attributes, generated, shared, dropped, role = rows.root
    partitions, columns = rows.partitions, tuple(rows.columns)
    identity, key, differ = _replica_identity(rows)
    quoted = f"{eligibility.quote_identifier(schema)}.{eligibility.quote_identifier(name)}"
    own = [] if readable else [(schema, name)]
    unreadable = [*own, *((partition.schema, partition.name) for partition in partitions if not partition.readable)]
    unlogged = (
        [quoted]
        if persistence != "p"
        else [partition.quoted for partition in partitions if partition.persistence != "p"]
    )
    foreign = [partition.quoted for partition in partitions if partition.kind == "f"]
    problem = eligibility.name_problem(shared) or eligibility.table_problem(
        quoted,
        _quoted_pairs(unreadable),
        role,
        [partition.quoted for partition in partitions] or [quoted],
        unlogged,
        foreign,
        identity,
        key,
        differ=differ,
        full_fails=generated,
        is_partitioned=kind == "p",
    )
    table_partitions = tuple(
        Partition(partition.oid, f"{partition.schema}.{partition.name}", partition.storage, partition.attached)
        for partition in partitions
    )
    return CatalogTable(
        oid=oid,
        schema=schema,
        name=name,
        identity=identity,
        key_columns=key,
        columns=columns,
        partitions=table_partitions,
        partition_sizes=tuple((partition, *sizes[partition.partition_id]) for partition in table_partitions),
        attributes=attributes,
        columns_with_default=frozenset(
            c.attnum for c in columns if any(c.name in partition.columns_with_default for partition in partitions)
        ),
        is_owned=owned,
        dropped_attnums=frozenset(dropped),
        key_id=rows.key_id,
        column_names={partition.oid: tuple(partition.column_names) for partition in partitions},
        unlogged=bool(unlogged),
        problem=problem or eligibility.columns_problem(columns, key, whole=identity == "f" and generated),
    )


def _quoted_pairs(names: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Schema and name, quoted, without duplicates: a plain table is its own partition."""
    return [
        (eligibility.quote_identifier(schema), eligibility.quote_identifier(name))
        for schema, name in dict.fromkeys(names)
    ]


def emit_marker(connection: Connection) -> int:
    """Write a transactional logical message; its LSN.

    A reader that is past this LSN has received all transactions that committed before the call. Raises Failure on a
    standby.
    """
    try:
        row = connection.execute("SELECT pg_logical_emit_message(true, 'tidemark', '')::text").fetchone()
    except psycopg.errors.ReadOnlySqlTransaction:
        raise Failure(
            "the server is a standby, where no logical message can be written",
            f"database {connection.info.dbname}",
            "Point the DSN at the primary",
        ) from None
    assert row is not None
    return parse_lsn(row[0])
