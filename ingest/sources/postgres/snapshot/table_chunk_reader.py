"""Reading a chunk of a Postgres table on one of Spark's executors, into a Parquet file.

A chunk is a range of blocks of one leaf, read by COPY under the snapshot's transaction; after the
read, in the same transaction, the table's storage and columns are compared with the registered
ones: under a held snapshot a rewritten table looks empty.
"""

import json
from dataclasses import asdict, dataclass
from datetime import datetime, timezone

import psycopg
from psycopg import sql

from ingest.common.errors import Failure
from ingest.common.records import SNAPSHOT_ROWS
from ingest.common.row_key import row_keys
from ingest.lake.parquet_files import Folder, Sink
from ingest.snapshot.chunk_task import (
    CHANGED,
    FAILED,
    FORBIDDEN,
    NO_SNAPSHOT,
    UNREACHABLE,
    ChunkResult,
    SnapshotRows,
    Task,
)
from ingest.sources.postgres.postgres_connection import CannotConnect, Connection, connect, copy_out
from ingest.sources.postgres.snapshot import copy_text

# What a server says of a snapshot that is not there, or was let go of.
_SNAPSHOT_ERRORS = (
    psycopg.errors.InvalidParameterValue,
    psycopg.errors.ObjectNotInPrerequisiteState,
    psycopg.errors.UndefinedObject,
)


class _NoSnapshot(Exception):
    """The exported snapshot is gone."""


@dataclass(frozen=True)
class ChunkTask:
    """What an executor needs to know to read a chunk.

    relation_id: the table's oid, partition_id: of what is read. columns: names with the numbers that the table has
    for them. key: column names in key order, None: all.
    lower, upper: block numbers. row_keys: only rows with these.
    snapshot: the name to import. read_lsn: that snapshot's stamp.
    storage: of every leaf of the table, by oid.
    """

    source: str
    table_name: str
    table_id: str
    snapshot_id: str
    snapshot_lsn: int
    chunk: int
    attempt: int
    relation_id: int
    partition_id: int
    columns: dict[str, int]
    key: tuple[str, ...] | None
    row_filter: str | None
    lower: int
    upper: int | None
    row_keys: tuple[str, ...] | None
    snapshot: str
    read_lsn: int
    storage: dict[int, int]
    folder: str
    largest_row: int | None

    def pack(self) -> Task:
        """As JSON can hold it."""
        return asdict(self)


def unpack(packed: Task) -> ChunkTask:
    """The task that was packed."""
    found = dict(packed)
    found["key"] = None if found["key"] is None else tuple(found["key"])
    found["row_keys"] = None if found["row_keys"] is None else tuple(found["row_keys"])
    found["storage"] = {int(oid): node for oid, node in found["storage"].items()}
    return ChunkTask(**found)


def read_chunk(dsn: str, packed: Task, connect_timeout_seconds: float) -> ChunkResult:
    """Read one chunk into its file. Raises nothing that the source may say: it is the result."""
    task = unpack(packed)
    sink: Sink | None = None
    try:
        with connect(dsn, connect_timeout_seconds=connect_timeout_seconds) as connection:
            _begin(connection, task)
            sink = Sink(
                Folder(task.folder, task.largest_row), SNAPSHOT_ROWS, f"{task.snapshot_id}-{task.chunk}.parquet"
            )
            _read(connection, task, sink)
            changed = _changed(connection, task)
        file = sink.close()
        if changed or not file.rows:
            sink.discard()
        if changed:
            return ChunkResult(task.snapshot_id, task.chunk, problem=CHANGED, detail=changed)
        path = file.path if file.rows else None
        return ChunkResult(task.snapshot_id, task.chunk, path, file.rows, file.size, task.read_lsn)
    except BaseException as error:
        if sink is not None:
            sink.discard()
        if not isinstance(error, Failure | ValueError | psycopg.Error | _NoSnapshot):
            raise
        return ChunkResult(task.snapshot_id, task.chunk, problem=_kind(error), detail=_said(error))


def _begin(connection: Connection, task: ChunkTask) -> None:
    connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    try:
        connection.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(task.snapshot)))
    except _SNAPSHOT_ERRORS as error:
        raise _NoSnapshot(_said(error)) from error


def _read(connection: Connection, task: ChunkTask, sink: Sink) -> None:
    landed = SnapshotRows(task.pack(), datetime.now(timezone.utc))
    key = sorted(task.columns) if task.key is None else task.key
    payloads = copy_out(connection, _statement(connection, task))
    for rows in copy_text.decode(payloads, tuple(task.columns), key, task.table_name):
        sink.write(landed.table(row_keys(rows.keys, rows.count), rows.columns))


def _statement(connection: Connection, task: ChunkTask) -> str:
    """The COPY of a chunk: all its columns, in order. Raises UndefinedTable if it has gone."""
    conditions = [f"ctid >= '({task.lower},0)'"] if task.lower else []
    if task.row_keys is not None:
        conditions.append(_has_key(connection, task))
    if task.upper is not None:
        conditions.append(f"ctid < '({task.upper},0)'")
    if task.row_filter:
        conditions.append(f"({task.row_filter})")
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    names = sql.SQL(", ").join(map(sql.Identifier, task.columns)).as_string(connection)
    row = connection.execute(
        "SELECT format('%%I.%%I', n.nspname, c.relname) FROM pg_class c "
        "JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = %s::oid",
        [task.partition_id],
    ).fetchone()
    if row is None:
        raise psycopg.errors.UndefinedTable(f"relation {task.partition_id} is gone")
    return f"COPY (SELECT {names} FROM ONLY {row[0]}{where}) TO STDOUT"


_FOREIGN_TYPES = """
SELECT a.attname FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
WHERE a.attrelid = %s::oid AND a.attnum > 0 AND t.typnamespace <> 'pg_catalog'::regnamespace
"""


def _has_key(connection: Connection, task: ChunkTask) -> str:
    """That a row's key is one of these; Postgres reads the texts as it printed them.

    The operators of extensions' types are not on our search path: those are compared as they are printed, as are
    domains, whose casts to text may leave out blanks.
    """
    foreign = {name for (name,) in connection.execute(_FOREIGN_TYPES, [task.partition_id]).fetchall()}
    columns = sql.SQL(", ").join(
        sql.SQL("pg_catalog.format('%s', {})" if name in foreign else "{}").format(sql.Identifier(name))
        for name in task.key or ()
    )
    values = [sql.SQL("({})").format(sql.SQL(", ").join(map(sql.Literal, json.loads(k)))) for k in task.row_keys or ()]
    return sql.SQL("({}) IN ({})").format(columns, sql.SQL(", ").join(values)).as_string(connection)


# pg_class as the transaction's snapshot sees it, the file name as it is now: they differ after a
# rewrite.
_STORAGE = """
SELECT c.oid::bigint, c.relfilenode::bigint, coalesce(pg_relation_filenode(c.oid), 0)::bigint
FROM pg_class c WHERE c.oid = ANY (%s::oid[])
"""


# The columns' names as they are now, by which COPY found them, whatever the transaction's snapshot sees.
_NAMES = """
SELECT (pg_identify_object_as_address('pg_class'::regclass, %s::oid, number)).object_names[3]
FROM unnest(%s::int[]) WITH ORDINALITY AS a (number, place) ORDER BY place
"""


def _changed(connection: Connection, task: ChunkTask) -> str:
    """What of the table is not as it was registered; empty if nothing is. COPY holds it as it is now."""
    found = {oid: (then, now) for oid, then, now in connection.execute(_STORAGE, [list(task.storage)]).fetchall()}
    for oid, node in task.storage.items():
        if found.get(oid) != (node, node):
            return f"the storage of relation {oid} is another one"
    names = connection.execute(_NAMES, [task.relation_id, list(task.columns.values())]).fetchall()
    if [name for (name,) in names] != list(task.columns):
        return "its columns have other names"
    return ""


def _kind(error: Exception) -> str:
    if isinstance(error, CannotConnect):
        return UNREACHABLE
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        return FORBIDDEN
    if isinstance(error, psycopg.errors.UndefinedTable | psycopg.errors.UndefinedColumn):
        return CHANGED
    if isinstance(error, _NoSnapshot):
        return NO_SNAPSHOT
    if isinstance(error, psycopg.OperationalError):
        return UNREACHABLE
    return FAILED


def _said(error: Exception) -> str:
    primary = error.diag.message_primary if isinstance(error, psycopg.Error) else None
    return " ".join((primary or str(error)).split())
