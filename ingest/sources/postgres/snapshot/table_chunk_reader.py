"""Reads a chunk of a Postgres table on a Spark executor into a Parquet file.

A chunk is a range of blocks of one partition, read by COPY under the exported snapshot. After the read, in the same
transaction, the table's storage and columns are compared with the registered ones: under an older snapshot a rewritten
table looks empty.
"""

import json
from contextlib import closing
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
    LOCKED,
    NO_SNAPSHOT,
    UNREACHABLE,
    ChunkResult,
    SnapshotRows,
    Task,
)
from ingest.sources.postgres.postgres_connection import LOCK_TIMEOUT, CannotConnect, Connection, connect
from ingest.sources.postgres.snapshot import copy_rows, copy_text

# The server's errors for an exported snapshot that does not exist or was released.
_SNAPSHOT_ERRORS = (
    psycopg.errors.InvalidParameterValue,
    psycopg.errors.ObjectNotInPrerequisiteState,
    psycopg.errors.UndefinedObject,
)


class _NoSnapshot(Exception):
    """The exported snapshot no longer exists."""


@dataclass(frozen=True)
class ChunkTask:
    """A chunk to read, as sent to an executor.

    relation_id: oid of the table; partition_id: oid of the partition to read. columns: attnum by name. key: column
    names in key order; None: all. lower, upper: block numbers. row_keys: read only rows with these keys. snapshot: name
    of the exported snapshot; read_lsn: its LSN. storage: relfilenode of every partition of the table, by oid.
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
        """The task as JSON values."""
        return asdict(self)


def unpack(packed: Task) -> ChunkTask:
    """The task of `ChunkTask.pack`."""
    fields = dict(packed)
    fields["key"] = None if fields["key"] is None else tuple(fields["key"])
    fields["row_keys"] = None if fields["row_keys"] is None else tuple(fields["row_keys"])
    fields["storage"] = {int(oid): node for oid, node in fields["storage"].items()}
    return ChunkTask(**fields)


def read_chunk(dsn: str, packed: Task, connect_timeout_seconds: float) -> ChunkResult:
    """Read one chunk into its file. An error of the source is not raised, but is the result's problem."""
    task = unpack(packed)
    sink: Sink | None = None
    try:
        with connect(dsn, connect_timeout_seconds=connect_timeout_seconds) as connection:
            _begin(connection, task)
            sink = Sink(
                Folder(task.folder, task.largest_row), SNAPSHOT_ROWS, f"{task.snapshot_id}-{task.chunk}.parquet"
            )
            partition = _partition_name(connection, task)
            _read(connection, task, partition, sink)
            changed = _find_change(connection, task, partition)
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
        return ChunkResult(task.snapshot_id, task.chunk, problem=_problem_kind(error), detail=_one_line(error))


def _begin(connection: Connection, task: ChunkTask) -> None:
    connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    # Other chunks of the claim, and a stop, would wait with it.
    connection.execute(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'")
    try:
        connection.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(task.snapshot)))
    except _SNAPSHOT_ERRORS as error:
        raise _NoSnapshot(_one_line(error)) from error


def _partition_name(connection: Connection, task: ChunkTask) -> str:
    """The quoted name of the partition under the snapshot. Raises UndefinedTable if it was dropped."""
    row = connection.execute(
        "SELECT format('%%I.%%I', n.nspname, c.relname) FROM pg_class c "
        "JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = %s::oid",
        [task.partition_id],
    ).fetchone()
    if row is None:
        raise psycopg.errors.UndefinedTable(f"relation {task.partition_id} does not exist")
    return str(row[0])


def _read(connection: Connection, task: ChunkTask, partition: str, sink: Sink) -> None:
    snapshot_rows = SnapshotRows(task.pack(), datetime.now(timezone.utc))
    key = sorted(task.columns) if task.key is None else task.key
    with closing(copy_rows.read_rows(connection, _copy_statement(connection, task, partition))) as payloads:
        for rows in copy_text.decode(payloads, tuple(task.columns), key, task.table_name):
            sink.write(snapshot_rows.table(row_keys(rows.keys, rows.count), rows.columns))


def _copy_statement(connection: Connection, task: ChunkTask, partition: str) -> str:
    conditions = [f"ctid >= '({task.lower},0)'"] if task.lower else []
    if task.row_keys is not None:
        conditions.append(_key_condition(connection, task))
    if task.upper is not None:
        conditions.append(f"ctid < '({task.upper},0)'")
    if task.row_filter:
        conditions.append(f"({task.row_filter})")
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    names = sql.SQL(", ").join(map(sql.Identifier, task.columns)).as_string(connection)
    return f"COPY (SELECT {names} FROM ONLY {partition}{where}) TO STDOUT"


_FOREIGN_TYPES = """
SELECT a.attname FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
WHERE a.attrelid = %s::oid AND a.attnum > 0 AND t.typnamespace <> 'pg_catalog'::regnamespace
"""


def _key_condition(connection: Connection, task: ChunkTask) -> str:
    """The condition that a row's key is one of `row_keys`; Postgres parses the texts that it printed.

    Operators of extension types are not on the session's search path, so such values are compared as text; so are
    domains, whose casts to text may remove blanks.
    """
    foreign = {name for (name,) in connection.execute(_FOREIGN_TYPES, [task.partition_id]).fetchall()}
    columns = sql.SQL(", ").join(
        sql.SQL("pg_catalog.format('%s', {})" if name in foreign else "{}").format(sql.Identifier(name))
        for name in task.key or ()
    )
    values = [sql.SQL("({})").format(sql.SQL(", ").join(map(sql.Literal, json.loads(k)))) for k in task.row_keys or ()]
    return sql.SQL("({}) IN ({})").format(columns, sql.SQL(", ").join(values)).as_string(connection)


# pg_class is read under the transaction's snapshot, the file node as of now: they differ after a rewrite.
_STORAGE = """
SELECT c.oid::bigint, c.relfilenode::bigint, coalesce(pg_relation_filenode(c.oid), 0)::bigint
FROM pg_class c WHERE c.oid = ANY (%s::oid[])
"""


# The present names of the columns, which COPY uses, not those under the transaction's snapshot.
_NAMES = """
SELECT (pg_identify_object_as_address('pg_class'::regclass, %s::oid, number)).object_names[3]
FROM unnest(%s::int[]) WITH ORDINALITY AS a (number, place) ORDER BY place
"""


def _find_change(connection: Connection, task: ChunkTask, partition: str) -> str:
    """How the table differs from its registered state; empty: it does not. The COPY's lock keeps it unchanged.

    COPY finds the partition by its name of now: another partition may have that name since the snapshot.
    """
    ((oid,),) = connection.execute("SELECT to_regclass(%s)::oid::bigint", [partition]).fetchall()
    if oid != task.partition_id:
        return f"{partition} was renamed"
    nodes = {oid: (then, now) for oid, then, now in connection.execute(_STORAGE, [list(task.storage)]).fetchall()}
    for oid, node in task.storage.items():
        if nodes.get(oid) != (node, node):
            return f"the storage of relation {oid} was replaced"
    names = connection.execute(_NAMES, [task.relation_id, list(task.columns.values())]).fetchall()
    if [name for (name,) in names] != list(task.columns):
        return "its columns were renamed"
    return ""


def _problem_kind(error: Exception) -> str:
    if isinstance(error, CannotConnect):
        return UNREACHABLE
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        return FORBIDDEN
    if isinstance(error, psycopg.errors.LockNotAvailable):
        return LOCKED
    if isinstance(error, psycopg.errors.UndefinedTable | psycopg.errors.UndefinedColumn):
        return CHANGED
    if isinstance(error, _NoSnapshot):
        return NO_SNAPSHOT
    if isinstance(error, psycopg.OperationalError):
        return UNREACHABLE
    return FAILED


def _one_line(error: Exception) -> str:
    primary = error.diag.message_primary if isinstance(error, psycopg.Error) else None
    return " ".join((primary or str(error)).split())
