"""`tidemark verify`: compares the lake with the source, row by row, at one position of the source's log.

Reads the source like a snapshot, into temporary files, and compares them with `core.row_state` once that has reached
the position. Rows that have changed since are counted and not compared. The read starts after the stream has advanced.
"""

import json
import logging
import threading
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, replace

from pyspark.sql import SparkSession

from ingest.commands.table_lookup import locate_tables, select_sources
from ingest.common.errors import Failure
from ingest.config.sources_file import Settings
from ingest.config.sources_file import Source as SourceConfig
from ingest.lake import Chunk, DataFile, Lake, SourceTable
from ingest.lake.raw_schema import SNAPSHOT_ROWS
from ingest.lake.source_tables import ENDED
from ingest.lake.sql_literals import literal
from ingest.pipeline.catch_up import ProgressTimeout, wait_for_models, wait_for_stream
from ingest.snapshot.chunk_planning import range_chunks
from ingest.snapshot.snapshot_source import SnapshotPlan, SnapshotSource
from ingest.sources import source_kinds

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TableComparison:
    """The comparison of a table, in rows: compared, changed since (not compared), only in the source, only in the lake,
    with different values. examples: keys of some differing rows.
    """

    source: str
    table: str
    rows: int
    changed: int
    only_source: int
    only_lake: int
    different: int
    examples: tuple[str, ...]

    @property
    def is_equal(self) -> bool:
        """Whether no compared row differs."""
        return not (self.only_source or self.only_lake or self.different)

    def to_json(self) -> str:
        """One JSON object."""
        return json.dumps({**asdict(self), "equal": self.is_equal}, ensure_ascii=False)

    def __str__(self) -> str:
        name = f"{self.source}: {self.table}"
        changed_rows = f" ({self.changed:,} changed since, not compared)" if self.changed else ""
        if self.is_equal:
            return f"{name}: equal, {self.rows:,} rows{changed_rows}"
        differing = f"{self.only_source:,} rows only in the source, {self.only_lake:,} only in the lake"
        values = f"{self.different:,} with different values, of {self.rows:,}{changed_rows}"
        return f"{name}: DIFFERS: {differing}, {values}; such as {', '.join(self.examples)}"


def verify_tables(
    lake: Lake, settings: Settings, wait_seconds: float, table_names: Sequence[str] = (), source: str | None = None
) -> Iterator[TableComparison]:
    """Compares tables by name (none: all) of a source (None: all). Raises UsageError for an unknown name.

    Raises Failure after `wait_seconds` without progress of the stream or the models.
    """
    timeout = ProgressTimeout(wait_seconds)
    names_by_source = locate_tables(lake, settings, table_names, source)
    for source_config in select_sources(settings, source):
        if source_config.name in names_by_source or not table_names:
            snapshot_source = source_kinds.open_snapshot_source(lake, source_config, settings.settings)
            try:
                yield from verify_source(
                    lake, snapshot_source, source_config, timeout, names_by_source.get(source_config.name, ())
                )
            finally:
                snapshot_source.close()


def verify_source(
    lake: Lake,
    source: SnapshotSource,
    config: SourceConfig,
    timeout: ProgressTimeout,
    table_names: Collection[str] = (),
) -> Iterator[TableComparison]:
    """Compares tables (none named: all) of a source.

    Raises Failure if a snapshot is pending, if a named table can't be read, if open transactions delay the read, or if
    the models make no progress before they reach the position of the read.
    """
    name = config.name
    if not lake.tables.read(name):
        raise Failure("nothing is replicated yet", f"source {name}", "Run `tidemark run`")
    source.sync_catalog()
    selected_tables = _select_tables(lake, source, name, table_names)
    if not selected_tables:
        _log.warning("source %s: there is no table to compare", name)
    else:
        committed = lake.persisted_position(name)
        wait_for_stream(lake, config, committed, source.emit_marker(), timeout)
    plans = _plan(source, name, selected_tables, timeout.seconds) if selected_tables else []
    if len(plans) < len(selected_tables):
        raise Failure("the tables are being altered", f"source {name}", "Run `tidemark run`, then verify again")
    snapshot_tables = {
        plan.table.table_id: replace(
            plan.table, snapshot_id=f"verify-{plan.table.table_id}", snapshot_lsn=plan.snapshot_lsn
        )
        for plan in plans
    }
    chunks = [
        (table, chunk)
        for plan in plans
        for table in [snapshot_tables[plan.table.table_id]]
        for chunk in range_chunks(table, str(table.snapshot_id), plan.chunks)
    ]
    files = _read_source_rows(lake, source, name, chunks)
    try:
        source.release_resources()
        if plans:
            snapshots_end = max(table.complete_lsn or 0 for table in selected_tables)
            wait_for_models(lake, config, source.emit_marker(), snapshots_end, timeout)
        for plan in plans:
            table = snapshot_tables[plan.table.table_id]
            yield _compare_table(lake.spark, table, [file.path for file in files.get(table.table_id, [])])
    finally:
        _remove_files(files)


def _select_tables(lake: Lake, source: SnapshotSource, name: str, table_names: Collection[str]) -> list[SourceTable]:
    replicated_tables = [t for t in lake.tables.read(name).values() if not table_names or t.table_name in table_names]
    live_tables = [table for table in replicated_tables if table.state != ENDED]
    selected_tables = list(_skip_ineligible(source, live_tables))
    if table_names and len(selected_tables) < len(live_tables):
        table = next(table for table in live_tables if source.ineligibility_reason(table))
        raise Failure(
            f"the table can't be compared: {source.ineligibility_reason(table)}",
            f"source {name}, {table.table_name}",
            "Remove the cause, or name other tables",
        )
    pending_names = sorted(t.table_name for t in selected_tables if t.is_pending)
    if pending_names:
        raise Failure(f"snapshots are not complete: {', '.join(pending_names)}", f"source {name}", "Run `tidemark run`")
    return selected_tables


def _plan(
    source: SnapshotSource, name: str, tables: Sequence[SourceTable], wait_seconds: float
) -> Sequence[SnapshotPlan]:
    """Plans a snapshot. Raises Failure if the source's open transactions delay it for longer than `wait_seconds`."""
    has_expired = threading.Event()

    def cancel() -> None:
        has_expired.set()
        source.cancel()

    timer = threading.Timer(wait_seconds, cancel)
    timer.start()
    try:
        plans = source.plan(tables)
    finally:
        timer.cancel()
        timer.join()
    if has_expired.is_set() and not plans:
        raise Failure(
            f"open transactions have delayed the read for {wait_seconds:.0f} s",
            f"source {name}",
            "End them (the log names them), or raise --wait",
        )
    return plans


def _skip_ineligible(source: SnapshotSource, tables: Sequence[SourceTable]) -> Iterator[SourceTable]:
    """Skips tables that can't be captured any more, and logs each."""
    for table in tables:
        if reason := source.ineligibility_reason(table):
            _log.warning("%s is not compared: %s", table.table_name, reason)
        else:
            yield table


def _read_source_rows(
    lake: Lake, source: SnapshotSource, name: str, chunks: Sequence[tuple[SourceTable, Chunk]]
) -> dict[str, list[DataFile]]:
    """The source's rows as files, by table_id."""
    files: dict[str, list[DataFile]] = {}
    problems = []
    for outcome in source.read(chunks, lake.commit_folder(SNAPSHOT_ROWS)):
        if outcome.problem:
            problems.append(outcome.problem)
        elif outcome.file is not None:
            files.setdefault(outcome.chunk.table_id, []).append(outcome.file)
    if problems:
        _remove_files(files)
        raise Failure(f"the source can't be read ({problems[0]})", f"source {name}", "Verify again")
    return files


def _remove_files(files: dict[str, list[DataFile]]) -> None:
    for table_files in files.values():
        for file in table_files:
            file.remove()


def _compare_table(spark: SparkSession, table: SourceTable, paths: Sequence[str]) -> TableComparison:
    """Compares the files of a table with its rows in core.row_state."""
    schema = "table_id STRING, row_key STRING, columns MAP<STRING, STRING>"
    source_rows = spark.read.schema(schema).parquet(*paths) if paths else spark.createDataFrame([], schema)
    source_rows.createOrReplaceTempView("tidemark_verify")
    # The lake's rows may have columns that the source no longer has; documents have no fixed fields.
    names = ", ".join(literal(column.name) for column in table.columns)
    difference = f"exists(array({names}), name -> NOT source_rows.columns[name] <=> now.columns[name])"
    if not names:
        difference = "NOT array_sort(map_entries(source_rows.columns)) <=> array_sort(map_entries(now.columns))"
    table_condition = f"source = {literal(table.source)} AND table_id = {literal(table.table_id)}"
    # A row that was inserted and deleted between two runs, and a truncate, are only in the events.
    later_events = f"FROM core.events WHERE {table_condition} AND commit_lsn >= {table.snapshot_lsn}"
    row = spark.sql(
        f"""
        WITH now AS (
            SELECT row_key, columns, multiplicity, deleted, commit_lsn >= {table.snapshot_lsn} AS is_changed
            FROM core.row_state WHERE {table_condition}
        ),
        later AS (
            SELECT DISTINCT row_key {later_events} AND op <> 'truncate'
        ),
        source_rows AS (
            SELECT row_key, first(columns) AS columns, count(*) AS multiplicity FROM tidemark_verify GROUP BY row_key
        ),
        compared AS (
            SELECT
                coalesce(source_rows.row_key, now.row_key) AS row_key,
                coalesce(now.is_changed, false)
                    OR later.row_key IS NOT NULL
                    OR now.row_key IS NULL AND (SELECT count(*) > 0 {later_events} AND op = 'truncate') AS is_changed,
                now.row_key IS NULL OR now.deleted AS only_source,
                source_rows.row_key IS NULL AS only_lake,
                NOT source_rows.multiplicity <=> now.multiplicity
                    OR {difference} AS differs
            FROM source_rows FULL OUTER JOIN now ON source_rows.row_key = now.row_key
            LEFT JOIN later ON later.row_key = coalesce(source_rows.row_key, now.row_key)
            WHERE source_rows.row_key IS NOT NULL OR NOT now.deleted
        )
        SELECT
            count_if(NOT is_changed) AS rows,
            count_if(is_changed) AS changed,
            count_if(NOT is_changed AND only_source) AS only_source,
            count_if(NOT is_changed AND only_lake) AS only_lake,
            count_if(NOT is_changed AND NOT only_source AND NOT only_lake AND differs) AS different,
            array_compact(array_distinct(array(
                min(row_key) FILTER (WHERE NOT is_changed AND (only_source OR only_lake OR differs)),
                max(row_key) FILTER (WHERE NOT is_changed AND (only_source OR only_lake OR differs))
            ))) AS examples
        FROM compared"""
    ).collect()[0]
    spark.catalog.dropTempView("tidemark_verify")
    return TableComparison(
        source=table.source, table=table.table_name, **{**row.asDict(), "examples": tuple(row.examples)}
    )
