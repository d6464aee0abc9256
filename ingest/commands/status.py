"""`tidemark status`: positions and lag of sources, snapshots and definitions, failures, and waiting definitions."""

import dataclasses
import json
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pydantic import ByteSize
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ingest.common.errors import printable
from ingest.config.sources_file import Settings
from ingest.lake import Lake, model_tables
from ingest.lake.raw_schema import EVENTS, SOURCE_TABLES
from ingest.lake.source_tables import ENDED
from ingest.lake.sql_literals import literal
from ingest.positions import held_positions
from ingest.positions.held_positions import UnreachedChanges
from ingest.positions.position import Position, current_epochs
from ingest.sources import source_kinds


@dataclass(frozen=True)
class SourceStatus:
    """A source: its position (the minimum of its writers), its newest checkpoint, its writers, tables and slots.

    writers: the active ones, each with its position, its number of tables, and for how many seconds it has held back
    the minimum (held_seconds, see `held_positions`); 0 if it does not.
    retained_bytes, lag_bytes, lag_seconds: see `SourceLag`. Only Postgres has bytes.
    unpublished_seconds: time since the commit of the oldest change that is in the lake but not in `core.row_state`.
    problem: the error of the jobs, of the slots, or of the connection to the source.
    """

    name: str
    position: int | None
    checkpoint: int | None
    retained_bytes: int | None = None
    lag_bytes: int | None = None
    lag_seconds: float | None = None
    unpublished_seconds: float | None = None
    problem: str = ""
    tables: list[dict[str, Any]] = field(default_factory=list)
    writers: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Status:
    """All sources of sources.yml, the definitions, the last release, and the models of `core` that failed.

    release: release_id, published_at and age_seconds; None before the first. definitions: one entry for each
    definition and source, with state (published, waiting or failed), reason and since. Its evaluation is the last one:
    kind (incremental or full), why, put and removed (rows), at. None if the definition was never evaluated.
    """

    sources: list[SourceStatus]
    definitions: list[dict[str, Any]]
    release: dict[str, Any] | None = None
    failed: list[dict[str, Any]] = field(default_factory=list)

    def to_json(self) -> str:
        """As one JSON object; positions are integers."""
        return json.dumps(dataclasses.asdict(self), default=datetime.isoformat)


def read_status(lake: Lake, settings: Settings) -> Status:
    """The current status, from the lake and the sources."""
    watermarks = _read_watermarks(lake)
    sources = [_read_source(lake, settings, name, watermarks) for name in settings.sources]
    states = model_tables.read_model_states(lake.spark)
    definitions = model_tables.list_definitions(watermarks, states, model_tables.read_evaluations(lake.spark))
    failed_models = [{"model": model, **state} for model, state in states.items() if model in model_tables.CORE]
    return Status(sources, definitions, model_tables.read_release(lake.spark), failed_models)


def render_status(status: Status, settings: Settings) -> None:
    """Prints the status for a person."""
    console = Console(markup=False, emoji=False)  # names and messages are no markup
    for source in status.sources:
        _render_source(console, source, settings)
    if status.release:
        console.print(
            f"last release: {status.release['age_seconds']:,.0f} s ago, {status.release['published_at']:%F %T} UTC"
        )
    for model in status.failed:
        console.print(
            f"core.{model['model']} has failed since {model['since']:%F %T} UTC: {printable(model['reason'])}",
            style="red",
        )
    definitions = Table("definition", "source", "position", "state", "last evaluation")
    for definition in status.definitions:
        name = definition["source"]
        definitions.add_row(
            definition["definition"],
            name,
            _format_position(settings, name, definition["position"]),
            Text(_format_state(definition), "" if definition["state"] == "published" else "red"),
            _format_evaluation(definition["evaluation"]),
        )
    if status.definitions:
        console.print(definitions)


def _render_source(console: Console, source: SourceStatus, settings: Settings) -> None:
    retention = "" if source.retained_bytes is None else f", {source.retained_bytes / 1e6:,.1f} MB of log retained"
    lags = [
        "" if source.lag_bytes is None else ByteSize(source.lag_bytes).human_readable(),
        "" if source.lag_seconds is None else f"{source.lag_seconds:,.0f} s to commit",
        "" if source.unpublished_seconds is None else f"{source.unpublished_seconds:,.0f} s to publish",
    ]
    positions = (
        f" committed up to {_format_position(settings, source.name, source.position)}, "
        f"modelled up to {_format_position(settings, source.name, source.checkpoint)}{retention}"
    )
    console.print(Text.assemble((source.name, "bold"), positions))
    if any(lags):
        console.print(f"  lag: {', '.join(filter(None, lags))}")
    for writer in source.writers if len(source.writers) > 1 else ():
        line = Text(
            f"  writer {writer['writer']}: {writer['tables']} tables, "
            f"at {_format_position(settings, source.name, writer['position'])}"
        )
        if writer["held_seconds"] > settings.settings.idle_position_seconds:
            line.append(f", has held back the others for {writer['held_seconds']:,} s", "red")
        console.print(line)
    if source.problem:
        console.print(f"  {printable(source.problem)}", style="red")
    tables = Table("table", "snapshot", "rows read", "note")
    for table in source.tables:
        rows = "" if table["rows"] is None else f"{table['rows']:,}"
        tables.add_row(printable(table["table"]), table["state"], rows, printable(table["note"] or ""))
    if source.tables:
        console.print(tables)


def _format_state(definition: Mapping[str, Any]) -> str:
    if definition["state"] == "published":
        return "published"
    return f"{definition['state']} since {definition['since']:%F %T}: {printable(definition['reason'])}"


def _format_evaluation(evaluation: Mapping[str, Any] | None) -> str:
    if evaluation is None:
        return ""
    changes = f"PUT {evaluation['put']:,}, REMOVE {evaluation['removed']:,}"
    return f"{evaluation['at']:%F %T} {evaluation['kind']} ({evaluation['why']}), {changes}"


def _read_watermarks(lake: Lake) -> list[dict[str, Any]]:
    if not lake.spark.catalog.tableExists("core.model_watermarks"):
        return []
    rows = lake.spark.sql("SELECT * FROM core.model_watermarks ORDER BY model, source").collect()
    return [row.asDict() for row in rows]


def _read_source(lake: Lake, settings: Settings, name: str, watermarks: list[dict[str, Any]]) -> SourceStatus:
    tables = [
        {"table": table.table_name, "state": table.state, "rows": table.row_count, "note": table.note}
        for table in sorted(lake.tables.read(name).values(), key=lambda table: table.table_name)
        if table.state != ENDED
    ]
    checkpoint_positions = [m["position"] for m in watermarks if (m["model"], m["source"]) == ("checkpoints", name)]
    committed_position = lake.persisted_position(name)
    row_state_positions = [m["position"] for m in watermarks if (m["model"], m["source"]) == ("row_state", name)]
    lag = source_kinds.read_lag(lake, settings.sources[name], settings.settings)
    return SourceStatus(
        name,
        committed_position,
        checkpoint_positions[0] if checkpoint_positions else None,
        unpublished_seconds=None
        if committed_position is None
        else _measure_unpublished_seconds(lake, name, max(row_state_positions, default=0), committed_position),
        tables=tables,
        writers=_read_writers(lake, name),
        retained_bytes=lag.retained_bytes,
        lag_bytes=lag.lag_bytes,
        lag_seconds=lag.lag_seconds,
        problem=_join_problems(_read_failure(lake, name), lag.problem),
    )


def _join_problems(failure: str, problem: str) -> str:
    """The error of the jobs and the problem of the source; once if they are the same."""
    return failure if problem in failure else f"{failure} {problem}".strip()


def _read_failure(lake: Lake, name: str) -> str:
    """The stored error of the source's jobs."""
    error = lake.sources.read_error(name)
    return f"Its jobs have failed since {error[1]:%Y-%m-%d %H:%M:%S} UTC: {error[0]}" if error else ""


def _measure_unpublished_seconds(lake: Lake, name: str, modelled: int, committed: int) -> float:
    condition = f"source = {literal(name)} AND commit_lsn >= {modelled} AND commit_lsn < {committed}"
    oldest_commit_time = lake.spark.sql(
        f"SELECT unix_micros(min(commit_ts)) / 1e6D FROM {EVENTS} WHERE {condition}"
    ).collect()[0][0]
    return 0.0 if oldest_commit_time is None else max(0.0, time.time() - oldest_commit_time)


def _read_writers(lake: Lake, name: str) -> list[dict[str, Any]]:
    """The active writers."""
    stored_epochs = current_epochs(lake.positions.read(name))
    active_writers = {writer for writer in lake.sources.read_active_writers(name) if (name, writer) in stored_epochs}
    if not active_writers:
        return []
    epochs = {writer: stored_epochs[name, writer] for writer in sorted(active_writers)}
    table_counts = Counter(table.writer for table in lake.tables.read(name).values() if table.state != ENDED)
    held_seconds = held_positions.held_seconds(
        time.time(),
        lake.positions.read_samples(name, epochs),
        _read_unreached_changes(lake, epochs),
        _read_snapshot_ends(lake, name),
    )
    return [
        {
            "writer": writer,
            "position": epoch.position,
            "tables": table_counts[writer],
            "held_seconds": held_seconds[writer],
        }
        for writer, epoch in epochs.items()
    ]


def _read_unreached_changes(lake: Lake, writers: Mapping[int, Position]) -> dict[int, UnreachedChanges]:
    """By writer: the changes committed by other writers that it has not reached."""
    minimum = min(epoch.position for epoch in writers.values())
    positions = ", ".join(f"({literal(epoch.source)}, {writer}, {epoch.position})" for writer, epoch in writers.items())
    rows = lake.spark.sql(
        f"""
        SELECT w.writer, unix_micros(min(e.commit_ts)) / 1e6D AS first, unix_micros(max(e.commit_ts)) / 1e6D AS last
        FROM VALUES {positions} AS w (source, writer, position)
        JOIN {EVENTS} e
        ON e.source = w.source AND e.commit_lsn >= {minimum} AND e.commit_lsn >= w.position AND e.writer <> w.writer
        GROUP BY w.writer"""
    ).collect()
    return {row.writer: UnreachedChanges(row.first, row.last) for row in rows}


def _read_snapshot_ends(lake: Lake, name: str) -> list[tuple[int, float]]:
    """The end position of each complete snapshot, and when it was stored."""
    query = (
        f"SELECT complete_lsn, unix_micros(updated_at) / 1e6D FROM {SOURCE_TABLES} "
        f"WHERE source = {literal(name)} AND complete_lsn IS NOT NULL"
    )
    return [(row[0], row[1]) for row in lake.spark.sql(query).collect()]


def _format_position(settings: Settings, name: str, position: int | None) -> str:
    """A position as the source writes it."""
    source = settings.sources.get(name)
    if position is None:
        return "none yet"
    return str(position) if source is None else source_kinds.format_position(source, position)
