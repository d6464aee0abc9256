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
# While no run publishes, the staging of this many runs is progress: a killed run, one in progress, and the one after
# it.
_MAX_RUNS = 3


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
        if (idle_seconds := now - self._last_progress) >= self.seconds:
            raise Failure(f"no progress for {idle_seconds:.0f} s; {reason.what}", reason.where, reason.fix)
        if now - self._last_logged >= self._log_interval:
            self._log_interval = min(2 * self._log_interval, _LONGEST_LOG_SECONDS)
            duration_text = f"waiting for {now - self._started:.0f} s, last progress {idle_seconds:.0f} s ago"
            self._log_line(now, f"{reason.where}: {duration_text}, as {reason.what}")
        time.sleep(min(self._pause, self.seconds - idle_seconds))
        self._pause = min(1.5 * self._pause, _LONGEST_POLL_SECONDS)

    def _log_line(self, now: float, line: str) -> None:
        self._last_logged = now
        _log.info("%s", line)

    def reset(self) -> None:
        """Ends this wait; the next one starts from zero."""
        self._where = ""


def wait_for_stream(lake: Lake, source: Source, previous: int | None, position: int, timeout: ProgressTimeout) -> None:
    """Waits until the source's position is no longer `previous`. The log extends past `position`, so it must
    advance.
    """
    while (committed := lake.persisted_position(source.name)) == previous:
        timeout.wait(_explain_stream_wait(lake, source, position, committed))
    timeout.reset()


def wait_for_models(lake: Lake, source: Source, position: int, snapshots_end: int, timeout: ProgressTimeout) -> None:
    """Waits until the models include everything committed up to `position`, and the snapshots that ended at
    `snapshots_end`.
    """
    staged_runs = _StagedRuns(lake.spark)
    while True:
        committed = lake.persisted_position(source.name)
        if committed is None or committed <= position:
            timeout.wait(_explain_stream_wait(lake, source, position, committed))
            continue
        positions = _read_core_positions(lake.spark, source.name)
        if _has_caught_up(lake.spark, source.name, positions.get("row_state"), position, snapshots_end):
            timeout.reset()
            return
        staged_runs.refresh(tuple(sorted(positions.items())))
        timeout.wait(_explain_models_wait(source, max(position, snapshots_end), positions, staged_runs))


def _explain_stream_wait(lake: Lake, source: Source, position: int, committed: int | None) -> WaitReason:
    """The reason while the stream is behind `position`; names the slowest writer."""
    active_writers = lake.sources.read_active_writers(source.name)
    slowest_writers = [
        writer
        for (_, writer), epoch in current_epochs(lake.positions.read(source.name)).items()
        if writer in active_writers and epoch.position == committed
    ]
    problem = f"the stream {_describe_distance(source, committed, position, missing_text='has no position yet')}"
    where = f"source {source.name}, writer {slowest_writers[0] if slowest_writers else 1}"
    return WaitReason(committed, problem, where, "Run `tidemark run` at the same time")


def _describe_distance(source: Source, reached_position: int | None, position: int, missing_text: str) -> str:
    """The distance from `reached_position` to `position`. missing_text: the text if no position was reached."""
    if reached_position is None:
        return missing_text
    reached_text, target_text = (
        source_kinds.format_position(source, number) for number in (reached_position, position)
    )
    return f"is at {reached_text}, not past {target_text}"


def _read_core_positions(spark: SparkSession, name: str) -> dict[str, int]:
    """The published position of each model of `core`."""
    if not spark.catalog.tableExists("core.model_watermarks"):
        return {}
    rows = spark.sql(f"SELECT model, position FROM core.model_watermarks WHERE source = {literal(name)}").collect()
    return {row.model: row.position for row in rows if row.model in CORE}


def _has_caught_up(spark: SparkSession, name: str, modelled: int | None, position: int, snapshots_end: int) -> bool:
    if modelled is None or modelled <= snapshots_end:
        return False
    condition = f"commit_lsn >= {modelled} AND commit_lsn <= {position}"
    return (
        modelled > position
        or spark.sql(f"SELECT 1 FROM {EVENTS} WHERE source = {literal(name)} AND {condition} LIMIT 1").isEmpty()
    )


def _explain_models_wait(source: Source, position: int, positions: dict[str, int], runs: "_StagedRuns") -> WaitReason:
    modelled = positions.get("row_state")
    problem = f"it {_describe_distance(source, modelled, position, missing_text='is not built yet')}, and "
    if runs.are_failing:
        problem += "the runs of the models fail to publish"
        fix = "See the log of `tidemark run` for the error"
    elif runs.staged:
        problem += f"a run of the models has staged {', '.join(runs.staged)}"
        fix = "If that run is in progress, raise --wait; if it was killed, start `tidemark run`"
    else:
        problem += "no run of the models has staged anything"
        fix = "Run `tidemark run` at the same time"
    state = (tuple(positions.items()), tuple(runs.staged.items()))
    return WaitReason(state, problem, f"source {source.name}, model row_state", fix)


@dataclass
class _StagedRuns:
    """What runs of the models have staged and not published.

    staged: by table, the Iceberg snapshot of the newest run considered. Only the first `_MAX_RUNS` runs since the
    last release are considered, because a failing run is repeated forever. are_failing: whether there were more.
    """

    spark: SparkSession
    staged: dict[str, int] = field(default_factory=dict)
    _release_state: Hashable = None
    _seen_branches: dict[str, None] = field(default_factory=dict)

    @property
    def are_failing(self) -> bool:
        return len(self._seen_branches) > _MAX_RUNS

    def refresh(self, release_state: Hashable) -> None:
        """Reads the current branches. release_state: changes with each release."""
        if release_state != self._release_state:
            self._release_state, self._seen_branches = release_state, {}
        try:
            branches = self._read_branches(self._list_tables())
        except PySparkException:  # a table was dropped between the two queries
            return
        self._seen_branches |= dict.fromkeys(name for name, _ in branches if name not in self._seen_branches)
        current_branches = {name for name, _ in branches}
        newest_branch = next(
            (name for name in reversed(list(self._seen_branches)[:_MAX_RUNS]) if name in current_branches), None
        )
        self.staged = {table: snapshot for (branch, table), snapshot in branches.items() if branch == newest_branch}

    def _list_tables(self) -> list[str]:
        """The tables that runs stage, in the order of a run."""
        tables = [f"core.{model}" for model in CORE if self.spark.catalog.tableExists(f"core.{model}")]
        return tables + list_definition_tables(self.spark)

    def _read_branches(self, tables: Sequence[str]) -> dict[tuple[str, str], int]:
        """By branch of a run and table: the Iceberg snapshot."""
        if not tables:
            return {}
        query = " UNION ALL ".join(
            f"SELECT name, '{table}' AS of, snapshot_id FROM {table}.refs WHERE name LIKE 'run_%'" for table in tables
        )
        branches = {(row["name"], row["of"]): row["snapshot_id"] for row in self.spark.sql(query).collect()}
        return {key: branches[key] for key in sorted(branches, key=lambda key: tables.index(key[1]))}
