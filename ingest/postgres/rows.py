"""Reading the chunks of a snapshot on Spark's executors, each into a Parquet file where the lake
keeps its own.

`chunk_source` makes the Python Data Source; its rows tell how each chunk went, the data goes
straight to its file, and the driver commits what counts. The connection string is in the class's
closure, so it is in no option, plan or setting. A chunk is a range of blocks of one leaf, read by
COPY under the snapshot's transaction; after the read, in the same transaction, the table's storage
and columns are compared with the registered ones: under a held snapshot a rewritten table looks
empty.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import Any

import psycopg
import pyarrow as pa
from psycopg import sql
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from ingest.change import SNAPSHOT_ROWS
from ingest.errors import Failure
from ingest.files import Folder, Sink
from ingest.postgres import copytext
from ingest.postgres.connection import CannotConnect, Connection, connect, copy_out
from ingest.rowkey import row_keys

RESULT = (
    "snapshot_id STRING, chunk INT, path STRING, rows BIGINT, size BIGINT, read_lsn BIGINT, problem STRING, "
    "detail STRING"
)
# Why a chunk was not read: its storage or columns are no longer the registered ones; it may not be
# read; the snapshot that it was to be read in is gone; the source can't be reached; anything else.
CHANGED, FORBIDDEN, NO_SNAPSHOT, UNREACHABLE, FAILED = (
    "changed",
    "forbidden",
    "no snapshot",
    "unreachable",
    "failed",
)


@dataclass(frozen=True)
class ChunkTask:
    """What an executor needs to know to read a chunk.

    key: column names in key order, None: all.
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
    leaf_id: int
    columns: tuple[str, ...]
    key: tuple[str, ...] | None
    row_filter: str | None
    lower: int
    upper: int | None
    row_keys: tuple[str, ...] | None
    snapshot: str
    read_lsn: int
    storage: dict[int, int]
    folder: str


@dataclass(frozen=True)
class ChunkResult:
    """How it went.

    A file (path None if there were no rows), or a problem and what the source said.
    """

    snapshot_id: str
    chunk: int
    path: str | None = None
    rows: int = 0
    size: int = 0
    read_lsn: int = 0
    problem: str | None = None
    detail: str | None = None


def share_out(tasks: Iterable[tuple[int, ChunkTask]], workers: int) -> list[list[ChunkTask]]:
    """Weighed tasks as shares of about the same weight, at most `workers`; each keeps the order."""
    shares: list[list[ChunkTask]] = [[] for _ in range(workers)]
    load = [0] * workers
    for weight, task in sorted(tasks, key=lambda pair: -pair[0]):
        least = load.index(min(load))
        shares[least].append(task)
        load[least] += weight + 1
    return [share for share in shares if share]


def pack(shares: Sequence[Sequence[ChunkTask]]) -> str:
    """Shares of tasks as the Data Source's option `tasks`."""
    return json.dumps([[asdict(task) for task in share] for share in shares])


def _unpack(found: dict[str, Any]) -> ChunkTask:
    found["columns"] = tuple(found["columns"])
    found["key"] = None if found["key"] is None else tuple(found["key"])
    found["row_keys"] = None if found["row_keys"] is None else tuple(found["row_keys"])
    found["storage"] = {int(oid): node for oid, node in found["storage"].items()}
    return ChunkTask(**found)


def chunk_source(source: str, dsn: str, connect_seconds: float) -> type[DataSource]:
    """The Data Source class of one source; register it, then read its `name()` with the option `tasks`.

    Spark makes and plans it in processes of their own: they import nothing of ours.
    """
    format_name, result = f"tidemark_chunks_{source}", RESULT

    class Chunks(DataSource):
        @classmethod
        def name(cls) -> str:
            return format_name

        def schema(self) -> str:
            return result

        def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002  # it is ours
            return ChunksReader(self.options["tasks"])

    class ChunksReader(DataSourceReader):
        def __init__(self, tasks: str) -> None:
            self._shares = json.loads(tasks)

        def partitions(self) -> list[InputPartition]:
            return [InputPartition(place) for place in range(len(self._shares))]

        def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
            from ingest.postgres.rows import read_share

            yield from read_share(dsn, self._shares[partition.value], connect_seconds)

    return Chunks


def read_share(dsn: str, share: Sequence[dict[str, Any]], connect_seconds: float) -> Iterator[tuple[Any, ...]]:
    """Read packed tasks one after the other; gives each one's result when it is there."""
    for task in share:
        yield tuple(asdict(read_chunk(dsn, _unpack(task), connect_seconds)).values())


def read_chunk(dsn: str, task: ChunkTask, connect_seconds: float) -> ChunkResult:
    """Read one chunk into its file. Raises nothing that the source may say: it is the result."""
    sink: Sink | None = None
    try:
        with connect(dsn, connect_seconds=connect_seconds) as connection:
            _begin(connection, task)
            sink = Sink(Folder(task.folder), SNAPSHOT_ROWS, f"{task.snapshot_id}-{task.chunk}.parquet")
            _read(connection, task, sink)
            changed = _changed(connection, task)
        file = sink.close()
        if changed or not file.rows:
            sink.abandon()
        if changed:
            return ChunkResult(task.snapshot_id, task.chunk, problem=CHANGED, detail=changed)
        path = file.path if file.rows else None
        return ChunkResult(task.snapshot_id, task.chunk, path, file.rows, file.size, task.read_lsn)
    except (Failure, ValueError, psycopg.Error) as error:
        if sink is not None:
            sink.abandon()
        return ChunkResult(task.snapshot_id, task.chunk, problem=_kind(error), detail=_said(error))


def _begin(connection: Connection, task: ChunkTask) -> None:
    connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    connection.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(task.snapshot)))


def _read(connection: Connection, task: ChunkTask, sink: Sink) -> None:
    now = datetime.now(timezone.utc)
    key = sorted(task.columns) if task.key is None else task.key
    payloads = copy_out(connection, _statement(connection, task))
    for rows in copytext.decode(payloads, task.columns, key, task.table_name):
        sink.write(_table(task, now, row_keys(rows.keys, rows.count), rows.columns))


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
        [task.leaf_id],
    ).fetchone()
    if row is None:
        raise psycopg.errors.UndefinedTable(f"relation {task.leaf_id} is gone")
    return f"COPY (SELECT {names} FROM ONLY {row[0]}{where}) TO STDOUT"


_FOREIGN_TYPES = """
SELECT a.attname FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
WHERE a.attrelid = %s::oid AND a.attnum > 0 AND t.typnamespace <> 'pg_catalog'::regnamespace
"""


def _has_key(connection: Connection, task: ChunkTask) -> str:
    """That a row's key is one of these; Postgres reads the texts as it printed them.

    The operators of extensions' types are not on our search path: those are compared as texts.
    """
    foreign = {name for (name,) in connection.execute(_FOREIGN_TYPES, [task.leaf_id]).fetchall()}
    columns = sql.SQL(", ").join(
        sql.SQL("{}::text" if name in foreign else "{}").format(sql.Identifier(name)) for name in task.key or ()
    )
    values = [sql.SQL("({})").format(sql.SQL(", ").join(map(sql.Literal, json.loads(k)))) for k in task.row_keys or ()]
    return sql.SQL("({}) IN ({})").format(columns, sql.SQL(", ").join(values)).as_string(connection)


def _table(task: ChunkTask, now: datetime, row_key: pa.Array, columns: pa.Array) -> pa.Table:
    """`raw.snapshot_rows` of decoded rows; what is the same in all of them is stored once."""
    same: dict[str, Any] = {
        "source": task.source,
        "table_name": task.table_name,
        "table_id": task.table_id,
        "leaf_id": task.leaf_id,
        "snapshot_id": task.snapshot_id,
        "chunk": task.chunk,
        "attempt": task.attempt,
        "snapshot_lsn": task.snapshot_lsn,
        "read_lsn": task.read_lsn,
        "ingested_at": now,
    }
    arrays = {
        name: pa.repeat(pa.scalar(value, SNAPSHOT_ROWS.field(name).type), len(row_key)) for name, value in same.items()
    }
    arrays |= {"row_key": row_key, "columns": columns}
    return pa.Table.from_arrays([arrays[name] for name in SNAPSHOT_ROWS.names], schema=SNAPSHOT_ROWS)


# pg_class as the transaction's snapshot sees it, the file name as it is now: they differ after a
# rewrite.
_STORAGE = """
SELECT c.oid::bigint, c.relfilenode::bigint, coalesce(pg_relation_filenode(c.oid), 0)::bigint
FROM pg_class c WHERE c.oid = ANY (%s::oid[])
"""


def _changed(connection: Connection, task: ChunkTask) -> str:
    """What of the table is not as it was registered; empty if nothing is."""
    found = {oid: (then, now) for oid, then, now in connection.execute(_STORAGE, [list(task.storage)]).fetchall()}
    for oid, node in task.storage.items():
        if found.get(oid) != (node, node):
            return f"the storage of relation {oid} is another one"
    return ""


def _kind(error: Exception) -> str:
    if isinstance(error, CannotConnect):
        return UNREACHABLE
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        return FORBIDDEN
    if isinstance(error, psycopg.errors.UndefinedTable | psycopg.errors.UndefinedColumn):
        return CHANGED
    text = str(error)
    if "snapshot" in text and isinstance(
        error,
        psycopg.errors.InvalidParameterValue
        | psycopg.errors.ObjectNotInPrerequisiteState
        | psycopg.errors.UndefinedObject,
    ):
        return NO_SNAPSHOT
    if isinstance(error, psycopg.OperationalError):
        return UNREACHABLE
    return FAILED


def _said(error: Exception) -> str:
    primary = error.diag.message_primary if isinstance(error, psycopg.Error) else None
    return " ".join((primary or str(error)).split())
