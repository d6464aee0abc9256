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
    """A thread that regularly reads the progress of the jobs, and passes it to `show`.

    snapshot_seconds: from the start to the last row that a snapshot committed. snapshot_changes: row changes in the
    source during that time. lag: the age in seconds of the oldest transaction that is not in the lake yet.
    """

    def __init__(self, dsn: str, jobs: Jobs, traffic: Traffic, show: Callable[[str], None]) -> None:
        self.snapshot_rows = 0
        self.snapshot_seconds = 0.0
        self.snapshot_changes = 0
        self.events = 0
        self.lag = 0.0
        self.phase = ""
        self._dsn = dsn
        self._jobs = jobs
        self._traffic = traffic
        self._show = show
        self._commits: deque[tuple[float, int]] = deque()
        self._started = time.monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _work(self) -> None:
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            while not self._stop.wait(_INTERVAL_SECONDS):
                row = connection.execute("select pg_current_wal_flush_lsn()").fetchone()
                self._update(parse_lsn(row[0]) if row else 0)

    def _update(self, flushed: int) -> None:
        now = time.monotonic()
        rows = sum(job.rows for job in self._jobs.snapshotters)
        if rows > self.snapshot_rows:
            self.snapshot_rows, self.snapshot_seconds = rows, now - self._started
            self.snapshot_changes = self._traffic.changes
        self.events = sum(writer.progress.events for writer in self._jobs.writers)
        # MongoDB's positions, cluster times, are far above any LSN.
        committed = min((w.progress.position.position for w in self._jobs.writers), default=0)
        self._commits.append((now, flushed))
        while self._commits and self._commits[0][1] <= committed:
            self._commits.popleft()
        self.lag = now - self._commits[0][0] if self._commits else 0.0
        self._show(
            f"{self.phase}: {self._traffic.changes:,} row changes committed, "
            f"{self.events:,} events in the lake, {self.snapshot_rows:,} rows snapshotted, "
            f"lag {self.lag:.1f} s"
        )


class Latency:
    """The time from a client's COMMIT to the end of the run that published the row's bucket.

    A probe is complete when its row is published.
    """

    def __init__(self, spark: SparkSession, since: float) -> None:
        """since: probes that were committed before it (seconds since the epoch) are ignored."""
        self.seconds: list[float] = []
        self._spark = spark
        self._since = since
        newest = spark.sql(f"select max(_checkpoint_id) from {AIRPORT_DEPARTURES.table}")
        self._checkpoint = newest.collect()[0][0]
        self._open: dict[int, Probe] = {}
        self._known = 0

    def measure(self, probes: list[Probe], published: float, until: float) -> bool:
        """Called after a run that ended at `published`: whether all probes before `until` are complete."""
        new, self._known = probes[self._known :], len(probes)
        self._open |= {p.flight: p for p in new if self._since <= p.committed < until}
        rows = self._spark.sql(
            f"select id, _checkpoint_id from {AIRPORT_DEPARTURES.table} where _checkpoint_id > {self._checkpoint}"
        ).toArrow()
        if rows.num_rows:
            self._checkpoint = max(rows["_checkpoint_id"].to_pylist())
        for flight in set(rows["id"].to_pylist()) & self._open.keys():
            self.seconds.append(published - self._open.pop(flight).committed)
        return not self._open and time.time() >= until


def percentile(values: Iterable[float], percent: float) -> float:
    """The percentile by nearest rank; NaN if there are no values."""
    ordered = sorted(values)
    return ordered[max(math.ceil(len(ordered) * percent / 100), 1) - 1] if ordered else math.nan
