"""Reading the chunks of a snapshot on Spark's executors, each into a Parquet file where the lake keeps its own.

Each executor maps the number of its share to rows that tell how each chunk went; the data goes straight to its file,
and the driver commits what counts. What opens the source is in the function's closure, so it is in no option, plan or
setting.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, PythonException
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from ingest.common.environment_errors import unavailable
from ingest.common.errors import Failure, one_line
from ingest.config.job_settings import JobSettings
from ingest.lake import Chunk
from ingest.lake.parquet_files import DataFile
from ingest.snapshot.chunk_task import CHANGED, FAILED, FORBIDDEN, RESULTS, ChunkResult, Task
from ingest.snapshot.snapshot_source import Read

T = TypeVar("T")


def outcome(result: ChunkResult, chunk: Chunk) -> Read:
    """What a result means for the chunk that it is of."""
    if result.problem is None:
        file = DataFile(result.path, result.rows, result.size) if result.path else None
        return Read(chunk, result.rows, result.read_lsn, file)
    return Read(
        chunk,
        problem=result.detail or result.problem,
        restart=result.problem == CHANGED,
        give_up=result.problem in (FORBIDDEN, FAILED),
    )


class ChunkReader:
    """Has the executors read chunks of one source. module: what has `read_chunk`; secret: what opens the source."""

    def __init__(self, spark: SparkSession, module: str, secret: str, settings: JobSettings) -> None:
        self._spark = spark
        self._module = module
        self._secret = secret
        self._settings = settings

    def read(self, weighed: Sequence[tuple[int, Task]]) -> list[ChunkResult]:
        """The results of tasks weighed in bytes. Raises Failure if the executors don't work, Unavailable if they
        can't write.
        """
        shares = share_out(weighed, self._workers(sum(weight for weight, _ in weighed)))
        if not shares:
            return []
        read = _reader(self._module, self._secret, shares, self._settings.connect_timeout_seconds)
        numbers = self._spark.range(0, len(shares), 1, len(shares))
        try:
            return [
                ChunkResult(**row.asDict()) for row in numbers.mapInArrow(read, from_arrow_schema(RESULTS)).collect()
            ]
        except (PySparkException, Py4JJavaError) as error:
            if found := unavailable(error, str(weighed[0][1]["folder"])):
                raise found from error
            # What was raised in Python stands below its traceback.
            told = str(error).strip().splitlines()[-1:] if isinstance(error, PythonException) else [str(error)]
            raise Failure(
                f"Spark's executors can't read ({one_line(''.join(told))[:500]})",
                "the snapshot",
                "Spark's log says more; the package has to be installed on the executors",
            ) from error

    def _workers(self, weight: int) -> int:
        """How many are read at once. What no claim bounds leaves a core of a local Spark to other statements, such as
        the one that renews the chunks' lease, and those of the stream.
        """
        workers = self._settings.snapshot_workers
        if weight <= self._settings.snapshot_batch_bytes or getattr(self._spark, "_jvm", None) is None:
            return workers
        return max(1, min(workers, self._spark.sparkContext.defaultParallelism - 1))


def share_out(tasks: Iterable[tuple[int, T]], workers: int) -> list[list[T]]:
    """Weighed tasks as shares of about the same weight, at most `workers`; each keeps the order."""
    shares: list[list[T]] = [[] for _ in range(workers)]
    load = [0] * workers
    for weight, task in sorted(tasks, key=lambda pair: -pair[0]):
        least = load.index(min(load))
        shares[least].append(task)
        load[least] += weight + 1
    return [share for share in shares if share]


def _reader(
    module: str, secret: str, shares: Sequence[Sequence[Task]], connect_timeout_seconds: float
) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    """A function for `mapInArrow`: numbers of shares in, results out. What an executor imports is what it needs."""

    def read(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from ingest.snapshot.chunk_task import read_share

        for batch in numbers:
            for number in batch["id"].to_pylist():
                yield from read_share(module, secret, shares[number], connect_timeout_seconds)

    return read
