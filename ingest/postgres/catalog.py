"""What the source's catalogue says of its tables: keys, columns, leaves, and what keeps one from
being read.

Pure reading; every call sees the catalogue as of now, which may be later than the place of a
stream.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg

from ingest.change import table_id
from ingest.errors import Failure
from ingest.lake.tables import Column, Leaf, SourceTable
from ingest.positions import parse_lsn
from ingest.postgres.connection import Connection


@dataclass(frozen=True)
class CatalogTable:
    """A table as of now: a plain one, or the root of a partitioned one with its leaves.

    identity: the replica identity's letter. key_columns: in key order, None: no key. attributes:
    how many column numbers were given out. filled: columns that were added with a default. sizes:
    each leaf's, in blocks and, with its TOAST, in bytes. problem: why it can't be replicated, and
    what to do; empty if it can.
    """

    oid: int
    schema: str
    name: str
    identity: str
    key_columns: tuple[str, ...] | None
    columns: tuple[Column, ...]
    leaves: tuple[Leaf, ...]
    sizes: tuple[tuple[Leaf, int, int], ...]
    attributes: int
    filled: frozenset[int]
    owned: bool
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
        )


_ROOTS = """
SELECT c.oid::bigint, n.nspname, c.relname, c.relkind::text, c.relreplident::text,
       has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT'),
       pg_has_role(c.relowner, 'USAGE'), c.relpersistence::text, c.relnatts::int,
       EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND NOT a.attisdropped AND a.attgenerated <> '')
         AND current_setting('server_version_num')::int >= 180000
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence <> 't'
  AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname !~ '^pg_toast'
  AND (%(oids)s::oid[] IS NULL OR c.oid = ANY (%(oids)s::oid[]))
ORDER BY n.nspname, c.relname
"""

# A stored generated column comes with COPY but not with the stream (with PG 18 only if the
# publication says so): it is left out of both, on all versions. Whoever needs it computes it in the
# staging view.
_COLUMNS = """
SELECT a.attrelid::bigint, a.attname, a.attnum::int, format_type(a.atttypid, a.atttypmod)
FROM pg_attribute a
WHERE a.attrelid = ANY (%(oids)s::oid[]) AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
ORDER BY a.attrelid, a.attnum
"""

# Primary key and replica identity index of each table, columns in key order. A deferrable one is no
# replica identity.
_KEYS = """
SELECT i.indrelid::bigint, i.indisprimary, i.indisreplident,
       array(SELECT a.attname::text
             FROM unnest(i.indkey[0:i.indnkeyatts - 1]) WITH ORDINALITY AS k (attnum, place)
             JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
             ORDER BY k.place)
FROM pg_index i
WHERE i.indrelid = ANY (%(oids)s::oid[]) AND i.indisvalid AND i.indimmediate
  AND (i.indisprimary OR i.indisreplident)
"""

# pg_relation_filenode is 0 or NULL for what has no storage of its own.
_LEAVES = """
SELECT r.oid::bigint, c.oid::bigint, n.nspname, c.relname, c.relkind::text, c.relreplident::text,
       coalesce(pg_relation_filenode(c.oid), 0)::bigint,
       coalesce(pg_relation_size(c.oid), 0) / current_setting('block_size')::bigint,
       coalesce(pg_table_size(c.oid), 0),
       has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT'),
       array(SELECT a.attname::text FROM pg_attribute a WHERE a.attrelid = c.oid AND a.atthasmissing)
FROM unnest(%(oids)s::oid[]) AS r (oid)
CROSS JOIN LATERAL (
    SELECT t.relid FROM pg_partition_tree(r.oid) t WHERE t.isleaf
    UNION SELECT r.oid WHERE NOT EXISTS (SELECT FROM pg_partition_tree(r.oid))
) p
JOIN pg_class c ON c.oid = p.relid
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind <> 'p'
ORDER BY r.oid, c.oid
"""


def tables(connection: Connection, selects: Callable[[str], bool]) -> list[CatalogTable]:
    """The tables whose `schema.name` is selected, in the order of their names."""
    roots = connection.execute(_ROOTS, {"oids": None}).fetchall()
    return _describe(connection, [root for root in roots if selects(f"{root[1]}.{root[2]}")])


def table_of(connection: Connection, relation: int) -> CatalogTable | None:
    """The table that the relation with this oid is, or is a partition of.

    None if there is none now.
    """
    row = connection.execute(
        "SELECT coalesce(pg_partition_root(%(oid)s::oid), %(oid)s::oid)::bigint", {"oid": relation}
    ).fetchone()
    oid = row[0] if row else relation
    roots = connection.execute(_ROOTS, {"oids": [oid]}).fetchall()
    found = _describe(connection, roots)
    return found[0] if found else None


def _describe(connection: Connection, roots: Sequence[tuple[Any, ...]]) -> list[CatalogTable]:
    oids = [root[0] for root in roots]
    leaves: dict[int, list[tuple[Any, ...]]] = {}
    for row in connection.execute(_LEAVES, {"oids": oids}):
        leaves.setdefault(row[0], []).append(row[1:])
    columns: dict[int, list[Column]] = {}
    for oid, *column in connection.execute(_COLUMNS, {"oids": oids}):
        columns.setdefault(oid, []).append(Column(*column))
    keys: dict[int, dict[str, tuple[str, ...]]] = {}
    for oid, primary, chosen, names in connection.execute(_KEYS, {"oids": oids}):
        for letter, holds in (("p", primary), ("i", chosen)):
            if holds:
                keys.setdefault(oid, {})[letter] = tuple(names)
    return [_table(root, leaves.get(root[0], []), columns.get(root[0], []), keys.get(root[0], {})) for root in roots]


def _table(
    root: tuple[Any, ...],
    leaves: Sequence[tuple[Any, ...]],
    columns: Sequence[Column],
    keys: dict[str, tuple[str, ...]],
) -> CatalogTable:
    oid, schema, name, _kind, identity, readable, owned, persistence, attributes, generated = root
    # ALTER TABLE ... REPLICA IDENTITY on a root doesn't reach its leaves, and theirs is what
    # counts.
    identities = {leaf[4] for leaf in leaves}
    if len(identities) == 1:
        (identity,) = identities
    key = keys.get("i") if identity == "i" else keys.get("p")
    readable = readable and all(leaf[8] for leaf in leaves)
    problem = _problem(schema, name, readable, persistence, identities, identity, key, leaves)
    problem = problem or _problem_of_columns(columns, key, whole=identity == "f" and generated)
    named = tuple(Leaf(leaf[0], f"{leaf[1]}.{leaf[2]}", leaf[5]) for leaf in leaves)
    return CatalogTable(
        oid=oid,
        schema=schema,
        name=name,
        identity=identity,
        key_columns=key,
        columns=tuple(columns),
        leaves=named,
        sizes=tuple((known, leaf[6], leaf[7]) for known, leaf in zip(named, leaves, strict=True)),
        attributes=attributes,
        filled=frozenset(c.attnum for c in columns if any(c.name in leaf[9] for leaf in leaves)),
        owned=owned,
        problem=problem,
    )


def _problem(
    schema: str,
    name: str,
    readable: bool,
    persistence: str,
    identities: set[str],
    identity: str,
    key: tuple[str, ...] | None,
    leaves: Sequence[tuple[Any, ...]],
) -> str:
    table = f'"{schema}"."{name}"'
    if not readable:
        return f"no permission to read it; GRANT USAGE ON SCHEMA, and GRANT SELECT ON {table}, to the role"
    if persistence != "p":
        return f"it is unlogged, so its changes are in no log; ALTER TABLE {table} SET LOGGED"
    if foreign := [leaf[2] for leaf in leaves if leaf[3] == "f"]:
        return f"its partition {foreign[0]} is a foreign table, whose changes are in no log of this server"
    if len(identities) > 1:
        return "its partitions differ in their replica identity; give all of them the same"
    if identity == "n" or (identity in "di" and key is None):
        return (
            "it has no replica identity, so its updates and deletes can't be told apart (publishing them "
            f"would make them fail); add a primary key, or ALTER TABLE {table} REPLICA IDENTITY FULL"
        )
    return ""


def _problem_of_columns(columns: Sequence[Column], key: Sequence[str] | None, *, whole: bool) -> str:
    """whole: the identity holds all columns, and a generated one with them, on a server that minds."""
    names = {column.name for column in columns}
    if not names:
        return "it has no columns that could be replicated; leave it out of `tables`"
    generated = sorted(set(key or ()) - names)
    if generated or whole:
        which = f" ({generated[0]})" if generated else ""
        return (
            f"its replica identity has a generated column{which}, so publishing it would make its updates and deletes "
            "fail; give it a primary key without one, and REPLICA IDENTITY DEFAULT"
        )
    return ""


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
