"""Waits until stream and models have reached a position, for as long as they make progress.

Progress is seen by what they store: a writer's positions, the models' marks, and the branches on which a run in
progress stages table by table.
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
from ingest.lake.model_tables import CORE
from ingest.lake.raw_schema import EVENTS
from ingest.lake.sql_literals import literal
from ingest.positions.position import current
from ingest.sources import source_kinds

_log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
_LONGEST_LOOK_SECONDS = 5.0
# Between two lines about the same wait.
_SAY_SECONDS = 5.0
_LONGEST_SAY_SECONDS = 300.0
# Runs whose staging counts as progress while none publishes: a killed one, one in progress, and the one after it.
_RUNS = 3


@dataclass(frozen=True)
class Standstill:
    """What is waited for. state: changes with all progress. what, where, fix: of the Failure if there is none."""

    state: Hashable
    what: str
    where: str
    fix: str


@dataclass
class Patience:
    """Bounds every wait of a command by `seconds` without progress."""

    seconds: float
    _state: Hashable = None
    _where: str = ""
    _begun: float = 0.0
    _moved: float = 0.0
    _said: float = 0.0
    _pause: float = LOOK_SECONDS
    _quiet: float = _SAY_SECONDS

    def wait(self, found: Standstill) -> None:
        """Sleeps until the next look, and logs now and then what it waits for. Raises Failure without progress."""
        now = time.monotonic()
        if found.where != self._where:
            self._where, self._state, self._begun, self._moved = found.where, found.state, now, now
            self._pause, self._quiet = LOOK_SECONDS, _SAY_SECONDS
            self._say(now, f"{found.where}: waiting, as {found.what}")
        elif found.state != self._state:
            self._state, self._moved = found.state, now
        if (still := now - self._moved) >= self.seconds:
            raise Failure(f"no progress for {still:.0f} s; {found.what}", found.where, found.fix)
        if now - self._said >= self._quiet:
            self._quiet = min(2 * self._quiet, _LONGEST_SAY_SECONDS)
            waited = f"waiting for {now - self._begun:.0f} s, last progress {still:.0f} s ago"
            self._say(now, f"{found.where}: {waited}, as {found.what}")
        time.sleep(min(self._pause, self.seconds - still))
        self._pause = min(1.5 * self._pause, _LONGEST_LOOK_SECONDS)

    def _say(self, now: float, line: str) -> None:
        self._said = now
        _log.info("%s", line)

    def done(self) -> None:
        """The wait is over; the next one begins from zero."""
        self._where = ""


def await_stream(lake: Lake, source: Source, before: int | None, position: int, patience: Patience) -> None:
    """Until the source's stream has moved on from `before`, as it must: the log goes past `position`."""
    while (landed := lake.persisted(source.name)) == before:
        patience.wait(_stream(lake, source, position, landed))
    patience.done()


def await_models(lake: Lake, source: Source, position: int, done: int, patience: Patience) -> None:
    """Until all that was committed up to `position` is modelled, and so are the snapshots that ended at `done`."""
    runs = _Runs(lake.spark)
    while True:
        landed = lake.persisted(source.name)
        if landed is None or landed <= position:
            patience.wait(_stream(lake, source, position, landed))
            continue
        at = _modelled(lake.spark, source.name)
        if _is_enough(lake.spark, source.name, at.get("row_state"), position, done):
            patience.done()
            return
        runs.look(tuple(sorted(at.items())))
        patience.wait(_models(source, max(position, done), at, runs))


def _stream(lake: Lake, source: Source, position: int, landed: int | None) -> Standstill:
    """What is waited for while the stream is behind `position`; names the slowest writer."""
    counting = lake.writers(source.name)
    slowest = [
        w for (_, w), at in current(lake.positions(source.name)).items() if w in counting and at.position == landed
    ]
    what = f"the stream {_distance(source, landed, position, absent='has no position yet')}"
    where = f"source {source.name}, writer {slowest[0] if slowest else 1}"
    return Standstill(landed, what, where, "Run `tidemark run` at the same time")


def _distance(source: Source, reached: int | None, position: int, absent: str) -> str:
    """How far it is from the position that was reached to `position`. absent: the text if none was reached."""
    if reached is None:
        return absent
    at, to = (source_kinds.position_text(source, each) for each in (reached, position))
    return f"is at {at}, not past {to}"


def _modelled(spark: SparkSession, name: str) -> dict[str, int]:
    """The position up to which each model of `core` is published."""
    if not spark.catalog.tableExists("core.model_watermarks"):
        return {}
    rows = spark.sql(f"SELECT model, position FROM core.model_watermarks WHERE source = {literal(name)}").collect()
    return {row.model: row.position for row in rows if row.model in CORE}


def _is_enough(spark: SparkSession, name: str, modelled: int | None, position: int, done: int) -> bool:
    if modelled is None or modelled <= done:
        return False
    between = f"commit_lsn >= {modelled} AND commit_lsn <= {position}"
    return (
        modelled > position
        or spark.sql(f"SELECT 1 FROM {EVENTS} WHERE source = {literal(name)} AND {between} LIMIT 1").isEmpty()
    )


def _models(source: Source, position: int, at: dict[str, int], runs: "_Runs") -> Standstill:
    modelled = at.get("row_state")
    what = f"it {_distance(source, modelled, position, absent='is not built yet')}, and "
    if runs.fail:
        what += "run after run of the models publishes nothing"
        fix = "The log of `tidemark run` says what fails"
    elif runs.staged:
        what += f"a run of the models has staged {', '.join(runs.staged)}"
        fix = "If that run is in progress, raise --wait; if it was killed, start `tidemark run`"
    else:
        what += "no run of the models has staged anything"
        fix = "Run `tidemark run` at the same time"
    state = (tuple(at.items()), tuple(runs.staged.items()))
    return Standstill(state, what, f"source {source.name}, model row_state", fix)


@dataclass
class _Runs:
    """What runs of the models have staged and not published.

    staged: by table, the Iceberg snapshot of the newest run that counts. Of the runs since the last publication only
    the first `_RUNS` count, as a run that fails is repeated for ever; fail: whether there were more.
    """

    spark: SparkSession
    staged: dict[str, int] = field(default_factory=dict)
    _published: Hashable = None
    _seen: dict[str, None] = field(default_factory=dict)

    @property
    def fail(self) -> bool:
        return len(self._seen) > _RUNS

    def look(self, published: Hashable) -> None:
        """Looks at the branches now. published: changes with each publication."""
        if published != self._published:
            self._published, self._seen = published, {}
        try:
            branches = self._branches(self._tables())
        except PySparkException:  # a table was dropped between the two queries
            return
        self._seen |= dict.fromkeys(name for name, _ in branches if name not in self._seen)
        there = {name for name, _ in branches}
        newest = next((name for name in reversed(list(self._seen)[:_RUNS]) if name in there), None)
        self.staged = {table: snapshot for (branch, table), snapshot in branches.items() if branch == newest}

    def _tables(self) -> list[str]:
        """The tables that runs stage, in the order of a run."""
        found = [f"core.{model}" for model in CORE if self.spark.catalog.tableExists(f"core.{model}")]
        if self.spark.catalog.databaseExists("buckets"):
            names = {row["tableName"] for row in self.spark.sql("SHOW TABLES IN buckets").collect()}
            found += [f"buckets.{name}" for name in sorted(names) if f"{name}__ops" in names]
        return found

    def _branches(self, tables: Sequence[str]) -> dict[tuple[str, str], int]:
        """By branch of a run and table: the Iceberg snapshot."""
        if not tables:
            return {}
        query = " UNION ALL ".join(
            f"SELECT name, '{table}' AS of, snapshot_id FROM {table}.refs WHERE name LIKE 'run_%'" for table in tables
        )
        found = {(row["name"], row["of"]): row["snapshot_id"] for row in self.spark.sql(query).collect()}
        return {key: found[key] for key in sorted(found, key=lambda key: tables.index(key[1]))}
