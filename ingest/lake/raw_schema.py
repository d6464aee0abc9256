"""The raw tables: columns, Iceberg properties, and the migration of an older lake.

Any number of processes may call `ensure_tables` at the same time. Columns that an older version did not
have, and fields of list items, are added as nullable and stay so. Nothing is dropped or changed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import ArrayType, StructType

from ingest.common import records
from ingest.lake.catalog_capabilities import require_views
from ingest.lake.iceberg_commit import retry_on_conflict

EVENTS = "raw.wal_events"
SNAPSHOT_ROWS = "raw.snapshot_rows"
POSITIONS = "raw.stream_positions"
SOURCES = "raw.sources"
SOURCE_TABLES = "raw.source_tables"
CHUNKS = "raw.snapshot_chunks"

# For a commit per second for days: each commit deletes old metadata, the writer expires Iceberg snapshots (see
# `Committer.expire_snapshots`), manifests are merged early, and only columns used in filters have statistics.
_APPENDED = {
    "format-version": "3",
    "write.parquet.compression-codec": "zstd",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "5",
    "commit.manifest.min-count-to-merge": "50",
    "commit.retry.num-retries": "30",
    "commit.retry.min-wait-ms": "50",
    "commit.retry.max-wait-ms": "2000",
    "write.distribution-mode": "none",
    "write.metadata.metrics.default": "none",
    # By default Spark's writer looks at the size of a row group from its 100th row on: too late for large rows.
    "write.parquet.row-group-check-min-record-count": "1",
    "read.split.open-file-cost": "262144",  # the weight of a small file: a task reads 64 of them, by default 4
}
# Small tables that are updated. Serializable: of two conflicting updates, one fails.
_UPDATED = {
    **_APPENDED,
    "write.metadata.metrics.default": "full",
    "write.update.mode": "copy-on-write",
    "write.delete.mode": "copy-on-write",
    "write.merge.mode": "copy-on-write",
    "write.update.isolation-level": "serializable",
    "write.delete.isolation-level": "serializable",
    "write.merge.isolation-level": "serializable",
    "write.update.distribution-mode": "none",
    "write.merge.distribution-mode": "none",
}


def _sql_types(schema: pa.Schema) -> dict[str, str]:
    return {field.name: field.dataType.simpleString() for field in from_arrow_schema(schema)}


def _full_metrics(*columns: str) -> dict[str, str]:
    return {f"write.metadata.metrics.column.{column}": "full" for column in columns}


@dataclass(frozen=True)
class Table:
    """columns: Spark SQL type by name, in order. properties: Iceberg's, set when the table is created."""

    columns: Mapping[str, str]
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def ddl(self) -> str:
        """The columns as in CREATE TABLE."""
        return ", ".join(f"{column} {kind}" for column, kind in self.columns.items())


TABLES: Mapping[str, Table] = {
    EVENTS: Table(
        _sql_types(records.EVENTS),
        {**_APPENDED, **_full_metrics("source", "writer", "commit_lsn", "table_id")},
    ),
    SNAPSHOT_ROWS: Table(
        _sql_types(records.SNAPSHOT_ROWS),
        {**_APPENDED, **_full_metrics("source", "table_id", "snapshot_id", "chunk", "attempt")},
    ),
    POSITIONS: Table(
        _sql_types(records.POSITIONS),
        {**_APPENDED, "write.metadata.metrics.default": "full"},
    ),
    SOURCES: Table(
        {
            "source": "STRING",
            "snapshot_hold": "STRING",
            "writers": "ARRAY<INT>",
            "next_writers": "INT",
            "purged": "MAP<INT, BIGINT>",
            "error": "STRING",
            "error_at": "TIMESTAMP",
            "updated_at": "TIMESTAMP",
        },
        _UPDATED,
    ),
    SOURCE_TABLES: Table(
        {
            "source": "STRING",
            "table_id": "STRING",
            "table_name": "STRING",
            "relation_id": "BIGINT",
            "replica_identity": "STRING",
            "key_columns": "ARRAY<STRING>",
            "columns": "ARRAY<STRUCT<name: STRING, attnum: INT, type: STRING, altered: BIGINT>>",
            "partitions": "ARRAY<STRUCT<partition_id: BIGINT, name: STRING, storage: BIGINT, attached: STRING>>",
            "writer": "INT",
            "state": "STRING",
            "snapshot_id": "STRING",
            "snapshot_lsn": "BIGINT",
            "complete_lsn": "BIGINT",
            "row_count": "BIGINT",
            "ended_lsn": "BIGINT",
            "note": "STRING",
            "attributes": "INT",
            "key_id": "BIGINT",
            "published_id": "BIGINT",
            "dropped": "ARRAY<STRING>",
            "unlogged": "BOOLEAN",
            "rev": "BIGINT",
            "updated_at": "TIMESTAMP",
        },
        _UPDATED,
    ),
    CHUNKS: Table(
        {
            "source": "STRING",
            "table_id": "STRING",
            "snapshot_id": "STRING",
            "chunk": "INT",
            "partition_id": "BIGINT",
            "lower_bound": "STRING",
            "upper_bound": "STRING",
            "row_keys": "ARRAY<STRING>",
            "not_before": "BIGINT",
            "owner": "STRING",
            "lease_until": "TIMESTAMP",
            "attempt": "INT",
            "state": "STRING",
            "row_count": "BIGINT",
            "read_lsn": "BIGINT",
            "rev": "BIGINT",
            "updated_at": "TIMESTAMP",
        },
        _UPDATED,
    ),
}


def ensure_tables(spark: SparkSession) -> None:
    """Creates missing raw tables and adds missing columns.

    Raises Failure if the lake is new and its catalog does not support views, which the models need.
    """
    if spark.sql("SHOW NAMESPACES LIKE 'raw'").isEmpty():
        require_views(spark)
        retry_on_conflict(lambda: spark.sql("CREATE NAMESPACE IF NOT EXISTS raw"))
    existing = {row.tableName for row in spark.sql("SHOW TABLES IN raw").collect()}
    for name, table in TABLES.items():
        change = _migrate if name.removeprefix("raw.") in existing else _create
        retry_on_conflict(partial(change, spark, name, table))


def _create(spark: SparkSession, name: str, table: Table) -> None:
    properties = ", ".join(f"'{key}' = '{value}'" for key, value in table.properties.items())
    spark.sql(f"CREATE TABLE IF NOT EXISTS {name} ({table.ddl}) USING iceberg TBLPROPERTIES ({properties})")


def _migrate(spark: SparkSession, name: str, table: Table) -> None:
    present = spark.table(name).schema
    types = {field_.name: field_.dataType.simpleString() for field_ in present}
    # Mostly nothing has changed, and parsing the types is slow.
    if all(types.get(column) == kind.replace(" ", "").lower() for column, kind in table.columns.items()):
        return
    missing = _missing_columns(present, spark.createDataFrame([], table.ddl).schema)
    if missing:
        spark.sql(f"ALTER TABLE {name} ADD COLUMNS ({', '.join(missing)})")


def _missing_columns(present: StructType, wanted: StructType, inside: str = "") -> list[str]:
    """The missing columns, and the missing fields of list items, as in `partitions.element.attached STRING`."""
    missing = []
    for field_ in wanted:
        if field_.name not in present.names:
            missing.append(f"{inside}{field_.name} {field_.dataType.simpleString()}")
        elif isinstance(kind := field_.dataType, ArrayType) and isinstance(kind.elementType, StructType):
            items = present[field_.name].dataType.elementType  # type: ignore[attr-defined]
            missing += _missing_columns(items, kind.elementType, f"{inside}{field_.name}.element.")
    return missing
