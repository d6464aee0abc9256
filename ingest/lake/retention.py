"""Maintenance of the raw tables: purges rows that no run will read again, and compacts small files.

An event is read by the run whose range it is in, and as long as a snapshot with a lower snapshot LSN is pending. A
snapshot row is read by the run that admits its snapshot; a snapshot that was restarted is never admitted. After that,
rows are kept for `retention_seconds`.
"""

from collections.abc import Iterator

from pyspark.sql import Row, SparkSession

from ingest.lake.iceberg_commit import retry_on_conflict
from ingest.lake.raw_schema import CHUNKS, EVENTS, SNAPSHOT_ROWS, SOURCE_TABLES, SOURCES
from ingest.lake.spark_session import file_search
from ingest.lake.sql_literals import literal

SMALL_BYTES = 16 << 20
TARGET_BYTES = 128 << 20


def purge_raw(spark: SparkSession, keep_seconds: float) -> Iterator[str]:
    """Deletes rows that all models passed more than keep_seconds ago; yields a line per source and table."""
    if not spark.catalog.tableExists("core.model_watermarks"):
        return
    admitted: set[str] = set()
    for passed in _find_purgeable(spark, keep_seconds):
        admitted.update(passed.admitted)
        of_source = f"source = {literal(passed.source)}"
        purgeable = f"{of_source} AND commit_lsn < {passed.position}"
        lasts = spark.sql(
            f"SELECT writer, max(commit_lsn) AS lsn FROM {EVENTS} WHERE {purgeable} GROUP BY writer"
        ).collect()
        if lasts:
            # Stored first: a reader with an older position must not take the remaining events for complete.
            below = ", ".join(f"{last.writer}, {last.lsn + 1}L" for last in lasts)
            stored = "coalesce(purged, cast(map() AS MAP<INT, BIGINT>))"
            maximum = f"map_zip_with({stored}, map({below}), (writer, old, new) -> greatest(old, new))"
            _execute(spark, f"UPDATE {SOURCES} SET purged = {maximum} WHERE {of_source}")
            _delete(spark, EVENTS, purgeable)
            yield f"{EVENTS}: events of {passed.source} before position {passed.position} purged"
    yield from _purge_snapshots(spark, admitted, keep_seconds)


def _purge_snapshots(spark: SparkSession, admitted: set[str], keep_seconds: float) -> Iterator[str]:
    """Deletes the rows of admitted and of abandoned snapshots; chunks last, as their age decides what is abandoned."""
    committed = _committed_snapshots(spark)
    planned = {row.snapshot_id for row in spark.sql(f"SELECT DISTINCT snapshot_id FROM {CHUNKS}").collect()}
    purgeable = admitted | _find_abandoned_snapshots(spark, committed - planned, keep_seconds)
    for table, present in ((SNAPSHOT_ROWS, committed), (CHUNKS, planned)):
        if snapshots := sorted(purgeable & present):
            _delete(spark, table, f"snapshot_id IN ({', '.join(map(literal, snapshots))})")
            yield f"{table}: {len(snapshots)} snapshots purged"


def _find_abandoned_snapshots(spark: SparkSession, without_chunks: set[str], keep_seconds: float) -> set[str]:
    """Snapshots that were restarted, or whose table generation ended, and that no run has admitted.

    A run in progress may still admit the previous snapshot of a table, and a newly planned one is not registered yet:
    so table and chunks must not have changed for keep_seconds. without_chunks: snapshots with rows that were committed
    after their chunks had been deleted.
    """
    touched = f"SELECT table_id, snapshot_id, updated_at AS at FROM {CHUNKS}"
    if without_chunks:
        late = f"snapshot_id IN ({', '.join(map(literal, sorted(without_chunks)))})"
        touched += f" UNION ALL SELECT table_id, snapshot_id, ingested_at FROM {SNAPSHOT_ROWS} WHERE {late}"
    rows = spark.sql(f"""
        SELECT touched.snapshot_id
        FROM ({touched}) AS touched
        LEFT JOIN {SOURCE_TABLES} AS registered ON touched.table_id = registered.table_id
        LEFT ANTI JOIN (
            SELECT snapshot_id FROM {SOURCE_TABLES} WHERE state <> 'ended'
            UNION ALL
            SELECT snapshot_id FROM core.table_status
        ) AS named ON touched.snapshot_id = named.snapshot_id
        GROUP BY touched.snapshot_id
        HAVING max(greatest(touched.at, registered.updated_at))
            <= current_timestamp() - make_dt_interval(0, 0, 0, {keep_seconds})""").collect()
    return {row.snapshot_id for row in rows}


def compact_raw(spark: SparkSession, small_files: int) -> Iterator[str]:
    """Compacts the small files of raw.wal_events, sorted by position, if there are at least `small_files`."""
    query = f"SELECT count(*) AS files FROM {EVENTS}.files WHERE file_size_in_bytes < {SMALL_BYTES}"
    files = spark.sql(query).collect()[0].files
    if files >= small_files:
        statement = f"""
            CALL system.rewrite_data_files(
                table => '{EVENTS}', strategy => 'sort', sort_order => 'source, commit_lsn, change_lsn, commit_index',
                options => map(
                    'min-input-files', '{small_files}', 'min-file-size-bytes', '{SMALL_BYTES}',
                    'target-file-size-bytes', '{TARGET_BYTES}', 'max-file-size-bytes', '{(1 << 63) - 1}'
                )
            )"""
        _execute(spark, statement)
        yield f"{EVENTS}: {files} small files compacted"


def _find_purgeable(spark: SparkSession, keep_seconds: float) -> list[Row]:
    """For each source: the position below which no event is read again, and the admitted snapshots.

    The position is bounded by the models' watermarks, by the newest checkpoint that is old enough, and by the snapshot
    LSNs of pending snapshots. While a pending snapshot has no LSN yet, no event is purged.
    """
    return spark.sql(f"""
        WITH watermarks AS (
            SELECT source, min(position) AS position, min(checkpoint_id) AS checkpoint_id
            FROM core.model_watermarks WHERE model IN ('events', 'table_status', 'row_state')
            GROUP BY source HAVING count(*) = 3
        ),
        old AS (
            SELECT source, max(position) AS position, max(checkpoint_id) AS checkpoint_id
            FROM core.checkpoints WHERE created_at <= current_timestamp() - make_dt_interval(0, 0, 0, {keep_seconds})
            GROUP BY source
        ),
        pending AS (
            SELECT source, min(coalesce(snapshot_lsn, 0)) AS position
            FROM {SOURCE_TABLES} WHERE state IN ('queued', 'running') GROUP BY source
        ),
        admitted AS (
            SELECT t.source, collect_set(t.snapshot_id) AS snapshot_ids
            FROM core.table_status t
            JOIN watermarks USING (source)
            JOIN old USING (source)
            WHERE t.status = 'ready' AND t.checkpoint_id <= least(watermarks.checkpoint_id, old.checkpoint_id)
            GROUP BY t.source
        )
        SELECT source, least(watermarks.position, old.position, pending.position) AS position,
            coalesce(admitted.snapshot_ids, array()) AS admitted
        FROM watermarks JOIN old USING (source) LEFT JOIN pending USING (source) LEFT JOIN admitted USING (source)
        ORDER BY source""").collect()


def _committed_snapshots(spark: SparkSession) -> set[str]:
    """The snapshots that have rows, by the files' statistics: a file belongs to one chunk."""
    query = f"SELECT DISTINCT readable_metrics.snapshot_id.lower_bound AS snapshot_id FROM {SNAPSHOT_ROWS}.files"
    return {row.snapshot_id for row in spark.sql(query).collect()}


def _delete(spark: SparkSession, table: str, condition: str) -> None:
    with file_search(spark):
        _execute(spark, f"DELETE FROM {table} WHERE {condition}")


def _execute(spark: SparkSession, statement: str) -> None:
    retry_on_conflict(lambda: spark.sql(statement))
