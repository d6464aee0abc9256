"""Reading the chunks of a snapshot on Spark's executors, each into a Parquet file where the lake keeps its own.

A Python Data Source whose rows tell how each chunk went; the data goes straight to its file, and the driver commits
what counts. What opens the source is in the class's closure, so it is in no option, plan or setting. A source brings a
module with `read_chunk(secret, task, connect_seconds)` and the tasks it understands, as dictionaries.
"""

import importlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from ingest.change import SNAPSHOT_ROWS
from ingest.errors import Failure
from ingest.files import File
from ingest.lake import Chunk
from ingest.snapshot import Read

RESULT = (
    "snapshot_id STRING, chunk INT, path STRING, rows BIGINT, size BIGINT, read_lsn BIGINT, problem STRING, "
    "detail STRING"
)
# Why a chunk was not read: its table is no longer the registered one; it may not be read; the snapshot that it was to
# be read in is gone; the source can't be reached; anything else.
CHANGED, FORBIDDEN, NO_SNAPSHOT, UNREACHABLE, FAILED = (
    "changed",
    "forbidden",
    "no snapshot",
    "unreachable",
    "failed",
)
Task = dict[str, Any]
T = TypeVar("T")


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

    def outcome(self, chunk: Chunk) -> Read:
        """What it means for the chunk that it is of."""
        if self.problem is None:
            file = File(self.path, self.rows, self.size) if self.path else None
            return Read(chunk, self.rows, self.read_lsn, file)
        return Read(
            chunk,
            problem=self.detail or self.problem,
            restart=self.problem == CHANGED,
            give_up=self.problem in (FORBIDDEN, FAILED),
        )


class ChunkReader:
    """Has the executors read chunks of one source. module: what has `read_chunk`; secret: what opens the source."""

    def __init__(self, spark: SparkSession, source: str, module: str, secret: str, connect_seconds: float) -> None:
        self._spark = spark
        chunks = _data_source(f"tidemark_chunks_{source}", module, secret, connect_seconds)
        spark.dataSource.register(chunks)
        self._format = chunks.name()

    def read(self, tasks: Iterable[tuple[int, Task]], workers: int) -> list[ChunkResult]:
        """The results of weighed tasks, `workers` at once. Raises Failure if the executors can't work."""
        shares = share_out(tasks, workers)
        if not shares:
            return []
        reader = self._spark.read.format(self._format).option("tasks", json.dumps(shares))
        try:
            return [ChunkResult(**row.asDict()) for row in reader.load().collect()]
        except PySparkException as error:
            raise Failure(
                f"Spark's executors can't read ({str(error).partition(chr(10))[0]})",
                "the snapshot",
                "logs/spark.log says more; the package has to be installed on the executors",
            ) from error


def share_out(tasks: Iterable[tuple[int, T]], workers: int) -> list[list[T]]:
    """Weighed tasks as shares of about the same weight, at most `workers`; each keeps the order."""
    shares: list[list[T]] = [[] for _ in range(workers)]
    load = [0] * workers
    for weight, task in sorted(tasks, key=lambda pair: -pair[0]):
        least = load.index(min(load))
        shares[least].append(task)
        load[least] += weight + 1
    return [share for share in shares if share]


def snapshot_rows(task: Mapping[str, Any], now: datetime, row_key: pa.Array, columns: pa.Array) -> pa.Table:
    """`raw.snapshot_rows` of decoded rows; what is the same in all of them, as `task` has it, is stored once."""
    same = {**task, "ingested_at": now}
    arrays = {
        name: pa.repeat(pa.scalar(same[name], SNAPSHOT_ROWS.field(name).type), len(row_key))
        for name in SNAPSHOT_ROWS.names
        if name in same and name != "columns"
    }
    arrays |= {"row_key": row_key, "columns": columns}
    return pa.Table.from_arrays([arrays[name] for name in SNAPSHOT_ROWS.names], schema=SNAPSHOT_ROWS)


def _data_source(format_name: str, module: str, secret: str, connect_seconds: float) -> type[DataSource]:
    """The Data Source class of one source; register it, then read its `name()` with the option `tasks`.

    Spark makes and plans it in processes of their own: they import nothing of ours.
    """
    result = RESULT

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
            from ingest.chunkreader import read_share

            yield from read_share(module, secret, self._shares[partition.value], connect_seconds)

    return Chunks


def read_share(module: str, secret: str, share: Sequence[Task], connect_seconds: float) -> Iterator[tuple[Any, ...]]:
    """Read tasks one after the other; gives each one's result when it is there."""
    read_chunk = importlib.import_module(module).read_chunk
    for task in share:
        yield tuple(asdict(read_chunk(secret, task, connect_seconds)).values())
