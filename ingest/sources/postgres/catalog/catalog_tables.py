"""What the source's catalogue says of its tables: keys, columns, leaves, and what keeps one from
being read.

Pure reading; every call sees the catalogue as of one moment, which may be later than the place of
a stream. Connections are given in autocommit mode, outside of a transaction.
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


@dataclass(frozen=True)
class CatalogTable:
    """A table as of now: a plain one, or the root of a partitioned one with its leaves.

    identity: the replica identity's letter. key_columns: in key order, None: no key. attributes:
    how many column numbers were given out. filled: columns that were added with a default. gaps: the
    numbers of those that have gone. key_id: the primary key's, another one after it was made again.
    names: each leaf's columns in their order, generated ones too. sizes: each leaf's, in blocks and,
    with its TOAST, in bytes. unlogged: some of it is in no log. problem: why it can't be replicated,
    and what to do; empty if it can.
    """

    oid: int
    schema: str
    name: str
    identity: str
    key_columns: tuple[str, ...] | None
    columns: tuple[Column, ...]
    leaves: tuple[Partition, ...]
    sizes: tuple[tuple[Partition, int, int], ...]
    attributes: int
    filled: frozenset[int]
    owned: bool
    gaps: frozenset[int] = frozenset()
    key_id: int | None = None
    names: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    unlogged: bool = False
    problem: str = ""

    @property
    def table_name(self) -> str:
        """`schema.name`, unquoted."""
        return f"{self.schema}.{self.name}"

    def table_id(self, source: str) -> str:
        """Its present generation."""
        return table_id(source, self.oid, self.table_name, self.key_columns, self.identity)

    def row(self, source: str) -> SourceTable:
        """What raw.source_tables says of it when it is new."""
        return SourceTable(
            source,
            self.table_id(source),
            self.table_name,
            self.oid,
            self.identity,
            self.key_columns,
            self.columns,
            self.leaves,
            attributes=self.attributes,
            key_id=self.key_id,
        )


# A partition is a table of its own from the first half of DETACH ... CONCURRENTLY on.
_ROOTS = """
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

# A stored generated column comes with COPY but not with the stream (with PG 18 only if the
# publication says so): it is left out of both, on all versions. Whoever needs it computes it in the
# staging view.
_COLUMNS = """
SELECT a.attrelid::bigint, a.attname, a.attnum::int, format_type(a.atttypid, a.atttypmod), a.xmin::text::bigint
FROM pg_attribute a
WHERE a.attrelid = ANY (%(oids)s::oid[]) AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
ORDER BY a.attrelid, a.attnum
"""

# Primary key and replica identity index of each table, columns in key order. A deferrable one is no
# replica identity.
_KEYS = """
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

# Partitions by pg_inherits, as functions such as pg_partition_tree see it as of now. Nothing here waits
# for a lock.
_LEAVES = """
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

_ROOT_OF = """
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

# As of now, and after whoever is altering a leaf.
_SIZES = """
SELECT oid::bigint, coalesce(pg_relation_size(oid), 0) / current_setting('block_size')::bigint,
       coalesce(pg_table_size(oid), 0)
FROM unnest(%(oids)s::oid[]) AS l (oid)
"""


class _LeafRow(NamedTuple):
    """What _LEAVES says of a leaf, after its root."""

    oid: int
    schema: str
    name: str
    kind: str
    persistence: str
    identity: str
    storage: int
    attached: str
    readable: bool
    filled: Sequence[str]
    names: Sequence[str]

    @property
    def quoted(self) -> str:
        return f"{eligibility.quoted(self.schema)}.{eligibility.quoted(self.name)}"


@dataclass
class _Found:
    """What the queries about one table give, but for its sizes. keys: the root's, `p` its primary key, `i` that of its
    replica identity index; leaf_keys: those of the leaves' indexes.
    """

    root: tuple[Any, ...]
    leaves: list[_LeafRow]
    columns: list[Column]
    keys: dict[str, tuple[str, ...]]
    leaf_keys: dict[int, tuple[str, ...]]
    key_id: int | None = None


def tables(connection: Connection, selects: Callable[[str], bool]) -> list[CatalogTable]:
    """The tables whose `schema.name` is selected, in the order of their names."""
    with _one_moment(connection):
        roots = connection.execute(_ROOTS, {"oids": None}).fetchall()
        found = _find(connection, [root for root in roots if selects(f"{root[1]}.{root[2]}")])
    return _measured(connection, found)


def table_of(connection: Connection, relation: int) -> CatalogTable | None:
    """The table that the relation with this oid is, or is a partition of.

    None if there is none now.
    """
    # The log tells of a commit before others see it. Who altered the relation holds its lock until they do.
    connection.execute("SELECT pg_relation_size(%s::oid)", [relation])
    with _one_moment(connection):
        ((root,),) = connection.execute(_ROOT_OF, {"oid": relation}).fetchall()
        found = _find(connection, connection.execute(_ROOTS, {"oids": [root]}).fetchall())
    return next(iter(_measured(connection, found)), None)


@contextmanager
def _one_moment(connection: Connection) -> Iterator[None]:
    """All queries see the catalogue as of the first: an alteration is seen as a whole or not at all."""
    try:
        with connection.transaction():
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            yield
    except psycopg.errors.CharacterNotInRepertoire as error:
        raise eligibility.not_utf8("name", f"the catalogue of database {connection.info.dbname}") from error


def _find(connection: Connection, roots: Sequence[tuple[Any, ...]]) -> list[_Found]:
    found = {root[0]: _Found(root, [], [], {}, {}) for root in roots}
    table_of_leaf: dict[int, _Found] = {}
    oids = {"oids": list(found)}
    for oid, *leaf in connection.execute(_LEAVES, oids):
        row = _LeafRow(*leaf)
        found[oid].leaves.append(row)
        table_of_leaf[row.oid] = found[oid]
    for oid, *column in connection.execute(_COLUMNS, oids):
        found[oid].columns.append(Column(*column))
    for oid, primary, chosen, key_id, names in connection.execute(_KEYS, {"oids": [*{*found, *table_of_leaf}]}):
        for letter, holds in (("p", primary), ("i", chosen)):
            if holds and oid in found:
                found[oid].keys[letter] = tuple(names)
        if primary and oid in found:
            found[oid].key_id = key_id
        if chosen and oid in table_of_leaf:
            table_of_leaf[oid].leaf_keys[oid] = tuple(names)
    return list(found.values())


def _measured(connection: Connection, found: Sequence[_Found]) -> list[CatalogTable]:
    oids = [leaf.oid for one in found for leaf in one.leaves]
    rows = connection.execute(_SIZES, {"oids": oids}).fetchall()
    sizes = {oid: (pages, size) for oid, pages, size in rows}
    return [_table(one, sizes) for one in found]


def _identity(found: _Found) -> tuple[str, tuple[str, ...] | None, bool]:
    """The replica identity's letter, its key, and whether the leaves differ in one of them.

    ALTER TABLE ... REPLICA IDENTITY on a root doesn't reach its leaves, and theirs is what counts. But a key of theirs
    that is none of the root's may be that of a row in each of them.
    """
    letters = {leaf.identity for leaf in found.leaves} or {found.root[4]}
    letter = min(letters)
    if letter != "i":
        return letter, found.keys.get("p"), len(letters) > 1
    own = [found.keys[kind] for kind in ("i", "p") if kind in found.keys]
    theirs = {frozenset(found.leaf_keys.get(leaf.oid, ())) for leaf in found.leaves} or set(map(frozenset, own[:1]))
    key = next((key for key in own if theirs == {frozenset(key)}), None)
    return letter, key, len(letters) > 1 or len(theirs) > 1


def _table(found: _Found, sizes: dict[int, tuple[int, int]]) -> CatalogTable:
    oid, schema, name, _kind, _, readable, owned, persistence, attributes, generated, shared, gaps, role = found.root
    leaves, columns = found.leaves, tuple(found.columns)
    identity, key, differ = _identity(found)
    quoted = f"{eligibility.quoted(schema)}.{eligibility.quoted(name)}"
    own = [] if readable else [(schema, name)]
    unreadable = [*own, *((leaf.schema, leaf.name) for leaf in leaves if not leaf.readable)]
    unlogged = [quoted] if persistence != "p" else [leaf.quoted for leaf in leaves if leaf.persistence != "p"]
    foreign = [leaf.quoted for leaf in leaves if leaf.kind == "f"]
    problem = eligibility.of_name(shared) or eligibility.of_table(
        quoted,
        _quoted_pairs(unreadable),
        role,
        [leaf.quoted for leaf in leaves] or [quoted],
        unlogged,
        foreign,
        identity,
        key,
        differ=differ,
    )
    named = tuple(Partition(leaf.oid, f"{leaf.schema}.{leaf.name}", leaf.storage, leaf.attached) for leaf in leaves)
    return CatalogTable(
        oid=oid,
        schema=schema,
        name=name,
        identity=identity,
        key_columns=key,
        columns=columns,
        leaves=named,
        sizes=tuple((leaf, *sizes[leaf.partition_id]) for leaf in named),
        attributes=attributes,
        filled=frozenset(c.attnum for c in columns if any(c.name in leaf.filled for leaf in leaves)),
        owned=owned,
        gaps=frozenset(gaps),
        key_id=found.key_id,
        names={leaf.oid: tuple(leaf.names) for leaf in leaves},
        unlogged=bool(unlogged),
        problem=problem or eligibility.of_columns(columns, key, whole=identity == "f" and generated),
    )


def _quoted_pairs(names: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Schema and name each, every pair once: a plain table is its own leaf."""
    return [(eligibility.quoted(schema), eligibility.quoted(name)) for schema, name in dict.fromkeys(names)]


def watermark(connection: Connection) -> int:
    """The LSN of a transactional message written now: all that has been committed is before it.

    Whoever has read the log past it has everything that was committed before this call.
    """
    try:
        row = connection.execute("SELECT pg_logical_emit_message(true, 'tidemark', '')::text").fetchone()
    except psycopg.errors.ReadOnlySqlTransaction:
        raise Failure(
            "the server is a standby, on which no watermark can be written",
            f"database {connection.info.dbname}",
            "Point the DSN at the primary",
        ) from None
    assert row is not None
    return parse_lsn(row[0])
