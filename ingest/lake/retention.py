"""Upkeep of the raw tables: rows that no run reads again go, small files are put together.

A record of the log is read by the run whose range it is in, and while a snapshot with an older stamp is on its way; a
row of a snapshot by the run that admits it, if there is one: a snapshot may be begun anew before. After that they are
for people, for as long as a setting says.
"""

from collections.abc import Iterator

from pyspark.sql import Row, SparkSession

from ingest.lake.iceberg_commit import retried
from ingest.lake.raw_schema import CHUNKS, EVENTS, SNAPSHOT_ROWS, SOURCE_TABLES, SOURCES
from ingest.lake.sql_literals import literal

SMALL_BYTES = 16 << 20
TARGET_BYTES = 128 << 20


def purge_raw(spark: SparkSession, keep_seconds: float) -> Iterator[str]:
    """Deletes what all models passed more than keep_seconds ago; gives a line for each source and table."""
    if not spark.catalog.tableExists("core.model_watermarks"):
        return
    admitted: set[str] = set()
    for passed in _passed(spark, keep_seconds):
        admitted.update(passed.admitted)
        mine = f"source = {literal(passed.source)}"
        gone = f"{mine} AND commit_lsn < {passed.position}"
        lasts = spark.sql(f"SELECT writer, max(commit_lsn) AS lsn FROM {EVENTS} WHERE {gone} GROUP BY writer").collect()
        if lasts:
            # Told first: who reads the log from a position of his own must not take what is left for all.
            below = ", ".join(f"{last.writer}, {last.lsn + 1}L" for last in lasts)
            before = "coalesce(purged, cast(map() AS MAP<INT, BIGINT>))"
            further = f"map_zip_with({before}, map({below}), (writer, one, other) -> greatest(one, other))"
            _run(spark, f"UPDATE {SOURCES} SET purged = {further} WHERE {mine}")
            _run(spark, f"DELETE FROM {EVENTS} WHERE {gone}")
            yield f"{EVENTS}: what {passed.source} logged before {passed.position} purged"
    yield from _purge_snapshots(spark, admitted, keep_seconds)


def _purge_snapshots(spark: SparkSession, admitted: set[str], keep_seconds: float) -> Iterator[str]:
    """Deletes snapshots that are admitted, and those that never will be; chunks last, as they tell how old it is."""
    landed = _landed_snapshots(spark)
    planned = {row.snapshot_id for row in spark.sql(f"SELECT DISTINCT snapshot_id FROM {CHUNKS}").collect()}
    gone = admitted | _left_behind(spark, landed - planned, keep_seconds)
    for table, there in ((SNAPSHOT_ROWS, landed), (CHUNKS, planned)):
        if snapshots := sorted(gone & there):
            _run(spark, f"DELETE FROM {table} WHERE snapshot_id IN ({', '.join(map(literal, snapshots))})")
            yield f"{table}: {len(snapshots)} snapshots purged"


def _left_behind(spark: SparkSession, without_chunks: set[str], keep_seconds: float) -> set[str]:
    """Snapshots that were begun anew, or whose table ended, and that no run has admitted.

    A run under way may have decided for what its table said before, and one that was just planned is not in its table
    yet: so neither table nor chunks have changed for keep_seconds. without_chunks: what a snapshotter landed that
    was too late.
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
    """Puts the log's small files together, in the order of the log, when there are so many of them."""
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
        _run(spark, statement)
        yield f"{EVENTS}: {files} small files put together"


def _passed(spark: SparkSession, keep_seconds: float) -> list[Row]:
    """For each source the position below which no record is read again, and the snapshots that are admitted.

    Bounded by the models' marks, by the newest checkpoint that is old enough, and by the stamps of the snapshots that
    are on their way; while one of those has none yet, no record is purged.
    """
    return spark.sql(f"""
        WITH marks AS (
            SELECT source, min(position) AS position, min(checkpoint_id) AS checkpoint_id
            FROM core.model_watermarks WHERE model IN ('events', 'table_status', 'row_state')
            GROUP BY source HAVING count(*) = 3
        ),
        old AS (
            SELECT source, max(lsn) AS position, max(checkpoint_id) AS checkpoint_id
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
            JOIN marks USING (source)
            JOIN old USING (source)
            WHERE t.status = 'ready' AND t.checkpoint_id <= least(marks.checkpoint_id, old.checkpoint_id)
            GROUP BY t.source
        )
        SELECT source, least(marks.position, old.position, pending.position) AS position,
            coalesce(admitted.snapshot_ids, array()) AS admitted
        FROM marks JOIN old USING (source) LEFT JOIN pending USING (source) LEFT JOIN admitted USING (source)
        ORDER BY source""").collect()


def _landed_snapshots(spark: SparkSession) -> set[str]:
    """The snapshots that have rows, by the files' statistics: a file is of one chunk."""
    query = f"SELECT DISTINCT readable_metrics.snapshot_id.lower_bound AS snapshot_id FROM {SNAPSHOT_ROWS}.files"
    return {row.snapshot_id for row in spark.sql(query).collect()}


def _run(spark: SparkSession, statement: str) -> None:
    retried(lambda: spark.sql(statement))
