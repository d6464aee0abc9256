"""Waits until stream and models have reached a position, as long as they make progress.

Progress is a change of what they store: the writers' positions, the models' watermarks, and the branches on which a
run in progress stages its tables.
"""

import logging
import time
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from ingest.common.errors import Failure
from ingest.config.sources_file import Source
from ingest.lake import Lake
from ingest.lake.model_tables import CORE, list_definition_tables
from ingest.lake.raw_schema import EVENTS
from ingest.lake.sql_literals import literal
from ingest.positions.position import current_epochs
from ingest.sources import source_kinds

_log = logging.getLogger(__name__)

POLL_SECONDS = 1.0
_LONGEST_POLL_SECONDS = 5.0
# Seconds between two log lines about the same wait.
_LOG_SECONDS = 5.0
_LONGEST_LOG_SECONDS = 300.0
# Number of runs whose staging is progress while none publishes: a killed run, one in progress, and the one after it.
_RUNS = 3


@dataclass(frozen=True)
class WaitReason:
    """Why a command waits. state: changes with any progress. what, where, fix: of the Failure without progress."""

    state: Hashable
    what: str
    where: str
    fix: str


@dataclass
class ProgressTimeout:
    """Limits every wait of a command to `seconds` without progress."""

    seconds: float
    _state: Hashable = None
    _where: str = ""
    _started: float = 0.0
    _last_progress: float = 0.0
    _last_logged: float = 0.0
    _pause: float = POLL_SECONDS
    _log_interval: float = _LOG_SECONDS

    def wait(self, reason: WaitReason) -> None:
        """Sleeps until the next poll, and logs the reason from time to time. Raises Failure without progress."""
        now = time.monotonic()
        if reason.where != self._where:
            self._where, self._state, self._started, self._last_progress = reason.where, reason.state, now, now
            self._pause, self._log_interval = POLL_SECONDS, _LOG_SECONDS
            self._log_line(now, f"{reason.where}: waiting, as {reason.what}")
        elif reason.state != self._state:
            self._state, self._last_progress = reason.state, now
        if (still := now - self._last_progress) >= self.seconds:
            raise Failure(f"no progress for {still:.0f} s; {reason.what}", reason.where, reason.fix)
        if now - self._last_logged >= self._log_interval:
            self._log_interval = min(2 * self._log_interval, _LONGEST_LOG_SECONDS)
            waited = f"waiting for {now - self._started:.0f} s, last progress {still:.0f} s ago"
            self._log_line(now, f"{reason.where}: {waited}, as {reason.what}")
        time.sleep(min(self._pause, self.seconds - still))
        self._pause = min(1.5 * self._pause, _LONGEST_POLL_SECONDS)

    def _log_line(self, now: float, line: str) -> None:
        self._last_logged = now
        _log.info("%s", line)

    def reset(self) -> None:
        """Ends this wait; the next one starts from zero."""
        self._where = ""


def wait_for_stream(lake: Lake, source: Source, before: int | None, position: int, timeout: ProgressTimeout) -> None:
    """Waits until the source's position is no longer `before`. The log extends past `position`, so it must advance."""
    while (committed := lake.persisted_position(source.name)) == before:
        timeout.wait(_stream_reason(lake, source, position, committed))
    timeout.reset()


def wait_for_models(lake: Lake, source: Source, position: int, done: int, timeout: ProgressTimeout) -> None:
    """Waits until the models include everything committed up to `position`, and the snapshots that ended at `done`."""
    runs = _StagedRuns(lake.spark)
    while True:
        committed = lake.persisted_position(source.name)
        if committed is None or committed <= position:
            timeout.wait(_stream_reason(lake, source, position, committed))
            continue
        positions = _core_positions(lake.spark, source.name)
        if _has_caught_up(lake.spark, source.name, positions.get("row_state"), position, done):
            timeout.reset()
            return
        runs.refresh(tuple(sorted(positions.items())))
        timeout.wait(_models_reason(source, max(position, done), positions, runs))


def _stream_reason(lake: Lake, source: Source, position: int, committed: int | None) -> WaitReason:
    """The reason while the stream is behind `position`; names the slowest writer."""
    active = lake.sources.read_active_writers(source.name)
    slowest = [
        w
        for (_, w), epoch in current_epochs(lake.positions.read(source.name)).items()
        if w in active and epoch.position == committed
    ]
    what = f"the stream {_distance(source, committed, position, absent='has no position yet')}"
    where = f"source {source.name}, writer {slowest[0] if slowest else 1}"
    return WaitReason(committed, what, where, "Run `tidemark run` at the same time")


def _distance(source: Source, reached: int | None, position: int, absent: str) -> str:
    """The distance from the position reached to `position`. absent: the text if no position was reached."""
    if reached is None:
        return absent
    start, to = (source_kinds.format_position(source, each) for each in (reached, position))
    return f"is at {start}, not past {to}"


def _core_positions(spark: SparkSession, name: str) -> dict[str, int]:
    """The published position of each model of `core`."""
    if not spark.catalog.tableExists("core.model_watermarks"):
        return {}
    rows = spark.sql(f"SELECT model, position FROM core.model_watermarks WHERE source = {literal(name)}").collect()
    return {row.model: row.position for row in rows if row.model in CORE}


def _has_caught_up(spark: SparkSession, name: str, modelled: int | None, position: int, done: int) -> bool:
    if modelled is None or modelled <= done:
        return False
    between = f"commit_lsn >= {modelled} AND commit_lsn <= {position}"
    return (
        modelled > position
        or spark.sql(f"SELECT 1 FROM {EVENTS} WHERE source = {literal(name)} AND {between} LIMIT 1").isEmpty()
    )


def _models_reason(source: Source, position: int, positions: dict[str, int], runs: "_StagedRuns") -> WaitReason:
    modelled = positions.get("row_state")
    what = f"it {_distance(source, modelled, position, absent='is not built yet')}, and "
    if runs.are_failing:
        what += "the runs of the models fail to publish"
        fix = "See the log of `tidemark run` for the error"
    elif runs.staged:
        what += f"a run of the models has staged {', '.join(runs.staged)}"
        fix = "If that run is in progress, raise --wait; if it was killed, start `tidemark run`"
    else:
        what += "no run of the models has staged anything"
        fix = "Run `tidemark run` at the same time"
    state = (tuple(positions.items()), tuple(runs.staged.items()))
    return WaitReason(state, what, f"source {source.name}, model row_state", fix)


@dataclass
class _StagedRuns:
    """What runs of the models have staged and not published.

    staged: by table, the Iceberg snapshot of the newest run considered. Only the first `_RUNS` runs since the last
    release are considered, because a failing run is repeated forever; are_failing: whether there were more.
    """

    spark: SparkSession
    staged: dict[str, int] = field(default_factory=dict)
    _published: Hashable = None
    _seen: dict[str, None] = field(default_factory=dict)

    @property
    def are_failing(self) -> bool:
        return len(self._seen) > _RUNS

    def refresh(self, published: Hashable) -> None:
        """Reads the current branches. published: changes with each release."""
        if published != self._published:
            self._published, self._seen = published, {}
        try:
            branches = self._branches(self._tables())
        except PySparkException:  # a table was dropped between the two queries
            return
        self._seen |= dict.fromkeys(name for name, _ in branches if name not in self._seen)
        staged_now = {name for name, _ in branches}
        newest = next((name for name in reversed(list(self._seen)[:_RUNS]) if name in staged_now), None)
        self.staged = {table: snapshot for (branch, table), snapshot in branches.items() if branch == newest}

    def _tables(self) -> list[str]:
        """The tables that runs stage, in the order of a run."""
        tables = [f"core.{model}" for model in CORE if self.spark.catalog.tableExists(f"core.{model}")]
        return tables + list_definition_tables(self.spark)

    def _branches(self, tables: Sequence[str]) -> dict[tuple[str, str], int]:
        """By branch of a run and table: the Iceberg snapshot."""
        if not tables:
            return {}
        query = " UNION ALL ".join(
            f"SELECT name, '{table}' AS of, snapshot_id FROM {table}.refs WHERE name LIKE 'run_%'" for table in tables
        )
        branches = {(row["name"], row["of"]): row["snapshot_id"] for row in self.spark.sql(query).collect()}
        return {key: branches[key] for key in sorted(branches, key=lambda key: tables.index(key[1]))}
