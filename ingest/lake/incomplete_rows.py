"""Rows that a snapshot and the stream leave without some of their values.

Chunks that were read at different moments miss a row that moved from an unread into a read one. The stream brings
it, but not its unchanged TOAST values; so such rows are asked for by their keys (design rule S8).
"""

from pyspark.sql import SparkSession

from ingest.lake.raw_schema import CHUNKS, EVENTS, SNAPSHOT_ROWS
from ingest.lake.source_tables import SourceTable
from ingest.lake.sql_literals import literal


def lacking(spark: SparkSession, table: SourceTable, below: int, most: int) -> list[tuple[int, str]]:
    """(partition, row_key) of up to `most` rows of a running snapshot that have to be read once more, by what is landed
    below a position.

    Those that an update reached without all its values, and that nothing complete precedes: no row of the snapshot,
    no record of the stream. One that took over another key counts always, as its snapshot row may be an earlier
    row's. Not those that were asked for since that update.
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
        LIMIT {most}"""
    ).collect()
    return [(row.partition_id, row.row_key) for row in rows]
