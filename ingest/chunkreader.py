"""Reading the chunks of a snapshot on Spark's executors, each into a Parquet file where the lake keeps its own.

A Python Data Source whose rows tell how each chunk went; the data goes straight to its file, and the driver commits
what counts. What opens the source is in the class's closure, so it is in no option, plan or setting.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from ingest.chunktask import CHANGED, FAILED, FORBIDDEN, ChunkResult, Task
from ingest.errors import Failure
from ingest.files import File
from ingest.lake import Chunk
from ingest.snapshot import Read

# The fields of ChunkResult.
RESULT = (
    "snapshot_id STRING, chunk INT, path STRING, rows BIGINT, size BIGINT, read_lsn BIGINT, problem STRING, "
    "detail STRING"
)
T = TypeVar("T")


def outcome(result: ChunkResult, chunk: Chunk) -> Read:
    """What a result means for the chunk that it is of."""
    if result.problem is None:
        file = File(result.path, result.rows, result.size) if result.path else None
        return Read(chunk, result.rows, result.read_lsn, file)
    return Read(
        chunk,
        problem=result.detail or result.problem,
        restart=result.problem == CHANGED,
        give_up=result.problem in (FORBIDDEN, FAILED),
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
            from ingest.chunktask import read_share

            yield from read_share(module, secret, self._shares[partition.value], connect_seconds)

    return Chunks
