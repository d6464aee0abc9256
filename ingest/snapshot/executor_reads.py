"""Reads snapshot chunks on Spark's executors, each chunk into a Parquet file in the folder of the lake's table.

The driver maps the numbers of shares, one for each executor, to rows with the results of their chunks. The data goes
directly to the files; the driver commits these. The secret that opens the source is in the function's closure, so it is
in no option, plan or setting of Spark.
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
from ingest.snapshot.snapshot_source import ChunkOutcome

T = TypeVar("T")


def chunk_outcome(result: ChunkResult, chunk: Chunk) -> ChunkOutcome:
    """What the result of a chunk means for its snapshot."""
    if result.problem is None:
        file = DataFile(result.path, result.rows, result.size) if result.path else None
        return ChunkOutcome(chunk, result.rows, result.read_lsn, file)
    return ChunkOutcome(
        chunk,
        problem=result.detail or result.problem,
        must_restart=result.problem == CHANGED,
        is_unreadable=result.problem in (FORBIDDEN, FAILED),
    )


class ChunkReader:
    """Reads chunks of one source on the executors. module: the name of the module with `read_chunk`. secret: opens the
    source.
    """

    def __init__(self, spark: SparkSession, module: str, secret: str, settings: JobSettings) -> None:
        self._spark = spark
        self._module = module
        self._secret = secret
        self._settings = settings

    def read(self, weighted_tasks: Sequence[tuple[int, Task]]) -> list[ChunkResult]:
        """The results of tasks, given with their estimated bytes. Raises Failure if the executors fail, Unavailable if
        they can't write.
        """
        shares = balance_chunks(weighted_tasks, self._count_workers(sum(weight for weight, _ in weighted_tasks)))
        if not shares:
            return []
        read_shares = _make_reader(self._module, self._secret, shares, self._settings.connect_timeout_seconds)
        share_numbers = self._spark.range(0, len(shares), 1, len(shares))
        try:
            rows = share_numbers.mapInArrow(read_shares, from_arrow_schema(RESULTS)).collect()
        except (PySparkException, Py4JJavaError) as error:
            if known_error := unavailable(error, str(weighted_tasks[0][1]["folder"])):
                raise known_error from error
            # A Python exception is below its traceback.
            lines = str(error).strip().splitlines()[-1:] if isinstance(error, PythonException) else [str(error)]
            raise Failure(
                f"Spark's executors can't read ({one_line(''.join(lines))[:500]})",
                "the snapshot",
                "See Spark's log; the package has to be installed on the executors",
            ) from error
        return [ChunkResult(**row.asDict()) for row in rows]

    def _count_workers(self, weight: int) -> int:
        """The number of chunks that are read in parallel. More than one batch of a local Spark leaves a core free for
        other statements, such as those of the stream and the one that renews the lease of the chunks.
        """
        workers = self._settings.snapshot_workers
        if weight <= self._settings.snapshot_batch_bytes or getattr(self._spark, "_jvm", None) is None:
            return workers
        return max(1, min(workers, self._spark.sparkContext.defaultParallelism - 1))


def balance_chunks(tasks: Iterable[tuple[int, T]], workers: int) -> list[list[T]]:
    """Tasks with their bytes, divided into at most `workers` shares of about the same size; none is empty."""
    shares: list[list[T]] = [[] for _ in range(workers)]
    loads = [0] * workers
    for weight, task in sorted(tasks, key=lambda weighted_task: -weighted_task[0]):
        smallest = loads.index(min(loads))
        shares[smallest].append(task)
        loads[smallest] += weight + 1
    return [share for share in shares if share]


def _make_reader(
    module: str, secret: str, shares: Sequence[Sequence[Task]], connect_timeout_seconds: float
) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    """The function for `mapInArrow`, from numbers of shares to results. It imports only what an executor needs."""

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from ingest.snapshot.chunk_task import read_share

        for batch in batches:
            for number in batch["id"].to_pylist():
                yield from read_share(module, secret, shares[number], connect_timeout_seconds)

    return read
