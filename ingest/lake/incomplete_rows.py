"""Rows for which neither the snapshot nor the stream has all values.

Chunks are read at different times, so a row that moves from an unread chunk into one already read is missed. The
stream has the update, but not the row's unchanged TOAST values. Such rows are read again by key.
"""

from pyspark.sql import SparkSession

from ingest.lake.raw_schema import CHUNKS, EVENTS, SNAPSHOT_ROWS
from ingest.lake.source_tables import SourceTable
from ingest.lake.sql_literals import literal


def find_incomplete_rows(spark: SparkSession, table: SourceTable, below: int, limit: int) -> list[tuple[int, str]]:
    """(partition_id, row_key) of up to `limit` rows of a running snapshot that must be read again, by the events
    below the position `below`.

    These are rows with a partial update and no complete version before it, neither in the snapshot nor in the stream.
    An update that changed the key is always included, because a snapshot row under the new key may be that of an
    earlier row. Rows that were read again after the update are excluded.
    """
    snapshot = f"snapshot_id = {literal(table.snapshot_id)}"
    rows = spark.sql(
        f"""
        WITH changes AS (
            SELECT partition_id, row_key, old_row_key, is_partial, op, commit_lsn,
                struct(change_lsn, commit_index) AS place
            FROM {EVENTS}
            WHERE source = {literal(table.source)} AND table_id = {literal(table.table_id)} AND op <> 'truncate'
                AND commit_lsn >= {table.snapshot_lsn} AND commit_lsn < {below}
        ),
        done AS (
            SELECT chunk, attempt, row_keys, read_lsn FROM {CHUNKS} WHERE {snapshot} AND state = 'done'
        ),
        asked AS (
            SELECT explode(row_keys) AS row_key, read_lsn FROM done
        ),
        complete AS (
            SELECT row_key, -1L AS commit_lsn, struct(-1L AS change_lsn, -1 AS commit_index) AS place
            FROM {SNAPSHOT_ROWS} LEFT SEMI JOIN done USING (chunk, attempt) WHERE {snapshot}
            UNION ALL
            SELECT row_key, commit_lsn, place FROM changes WHERE NOT is_partial AND op <> 'delete'
        )
        SELECT DISTINCT partition_id, row_key
        FROM changes
        LEFT ANTI JOIN asked ON changes.row_key = asked.row_key AND changes.commit_lsn < asked.read_lsn
        LEFT ANTI JOIN complete
            ON changes.row_key = complete.row_key AND changes.old_row_key IS NULL
            AND struct(complete.commit_lsn, complete.place) < struct(changes.commit_lsn, changes.place)
        WHERE is_partial
        ORDER BY partition_id, row_key
        LIMIT {limit}"""
    ).collect()
    return [(row.partition_id, row.row_key) for row in rows]
