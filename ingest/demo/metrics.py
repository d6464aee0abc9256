"""Measures the demo: the progress of stream and snapshots, and the latency from a commit to the bucket row."""

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable

import psycopg
from pyspark.sql import SparkSession
from typing_extensions import Self

from ingest.demo.changes import Probe, Traffic
from ingest.demo.definitions import AIRPORT_DEPARTURES
from ingest.pipeline.ingest_jobs import Jobs
from ingest.positions.position import parse_lsn

_INTERVAL_SECONDS = 0.25


class ProgressMonitor:
    """A thread that regularly reads the progress of the jobs, and passes it to `set_status`.

    snapshot_seconds: from the start to the last row that a snapshot committed. snapshot_changes: row changes in the
    source during that time. lag: the age in seconds of the oldest transaction that is not in the lake yet.
    """

    def __init__(self, dsn: str, jobs: Jobs, traffic: Traffic, set_status: Callable[[str], None]) -> None:
        self.snapshot_rows = 0
        self.snapshot_seconds = 0.0
        self.snapshot_changes = 0
        self.events = 0
        self.lag = 0.0
        self.phase = ""
        self._dsn = dsn
        self._jobs = jobs
        self._traffic = traffic
        self._set_status = set_status
        self._pending_lsns: deque[tuple[float, int]] = deque()
        self._started_at = time.monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            while not self._stop.wait(_INTERVAL_SECONDS):
                row = connection.execute("select pg_current_wal_flush_lsn()").fetchone()
                self._update(parse_lsn(row[0]) if row else 0)

    def _update(self, flushed_lsn: int) -> None:
        now = time.monotonic()
        rows = sum(job.rows for job in self._jobs.snapshotters)
        if rows > self.snapshot_rows:
            self.snapshot_rows, self.snapshot_seconds = rows, now - self._started_at
            self.snapshot_changes = self._traffic.changes
        self.events = sum(writer.progress.events for writer in self._jobs.writers)
        # MongoDB's positions, cluster times, are far above any LSN.
        committed_lsn = min((w.progress.position.position for w in self._jobs.writers), default=0)
        self._pending_lsns.append((now, flushed_lsn))
        while self._pending_lsns and self._pending_lsns[0][1] <= committed_lsn:
            self._pending_lsns.popleft()
        self.lag = now - self._pending_lsns[0][0] if self._pending_lsns else 0.0
        self._set_status(
            f"{self.phase}: {self._traffic.changes:,} row changes committed, "
            f"{self.events:,} events in the lake, {self.snapshot_rows:,} rows snapshotted, "
            f"lag {self.lag:.1f} s"
        )


class Latency:
    """The time from a client's COMMIT to the end of the run that published the row's bucket.

    A probe is complete when its row is published.
    """

    def __init__(self, spark: SparkSession, start: float) -> None:
        """start: probes that were committed before it (seconds since the epoch) are ignored."""
        self.seconds: list[float] = []
        self._spark = spark
        self._start = start
        query = spark.sql(f"select max(_checkpoint_id) from {AIRPORT_DEPARTURES.table}")
        self._checkpoint = query.collect()[0][0]
        self._open_probes: dict[int, Probe] = {}
        self._probe_count = 0

    def measure(self, probes: list[Probe], published_at: float, end: float) -> bool:
        """Called after a run that ended at `published_at`: whether all probes before `end` are complete."""
        new_probes, self._probe_count = probes[self._probe_count :], len(probes)
        self._open_probes |= {probe.flight: probe for probe in new_probes if self._start <= probe.committed < end}
        rows = self._spark.sql(
            f"select id, _checkpoint_id from {AIRPORT_DEPARTURES.table} where _checkpoint_id > {self._checkpoint}"
        ).toArrow()
        if rows.num_rows:
            self._checkpoint = max(rows["_checkpoint_id"].to_pylist())
        for flight in set(rows["id"].to_pylist()) & self._open_probes.keys():
            self.seconds.append(published_at - self._open_probes.pop(flight).committed)
        return not self._open_probes and time.time() >= end


def percentile(values: Iterable[float], percent: float) -> float:
    """The percentile by nearest rank; NaN if there are no values."""
    sorted_values = sorted(values)
    return sorted_values[max(math.ceil(len(sorted_values) * percent / 100), 1) - 1] if sorted_values else math.nan
