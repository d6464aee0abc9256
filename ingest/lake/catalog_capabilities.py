"""Checks that the catalog supports what the jobs and the models require.

All statements run in a scratch namespace with a unique name, which is removed with its content even after an error.
docs/reference/catalogs.md lists the requirements and the catalogs.
"""

import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession

from ingest.common.errors import Failure, TidemarkError, first_message_line, one_line
from ingest.common.findings import Finding
from ingest.lake.iceberg_commit import Committer, folder_of_location, retry_on_conflict, table_folder
from ingest.lake.parquet_files import Folder, write_file
from ingest.lake.spark_session import raise_if_java_exited

PREFIX = "tidemark_check_"

_SCHEMAS = {"raw", "core", "staging", "buckets"}
_FORMAT_VERSION = "3"
# What Spark, the catalog and the file system of the warehouse raise.
_ERRORS = (PySparkException, Py4JError, OSError, pa.ArrowException, TidemarkError)
# For conflicts with other processes, which the catalog does not cause.
_RETRY_SECONDS = 5.0


class _Scratch:
    """A namespace with a view and a table. Each public method tries one capability; raises one of `_ERRORS`."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self.catalog = spark.catalog.currentCatalog()
        self.name = f"{PREFIX}{uuid.uuid4().hex}"
        # With the catalog's name: else Iceberg's procedures first look for a catalog with the namespace's name.
        self._namespace = f"{self.catalog}.{self.name}"
        self._view, self._table = f"{self._namespace}.v", f"{self._namespace}.t"
        self._folder: Folder | None = None

    def create_namespace(self) -> None:
        self._run(f"CREATE NAMESPACE {self._namespace}")

    def create_views(self) -> None:
        self._run(f"CREATE VIEW {self._view} AS SELECT 1 AS id")
        self._remember_folder(self._run(f"SHOW TBLPROPERTIES {self._view} ('location')")[0]["value"])
        self._run(f"CREATE OR REPLACE VIEW {self._view} AS SELECT 2 AS id")
        self._run(f"SHOW VIEWS IN {self._namespace}")
        self._run(f"DROP VIEW {self._view}")

    def create_table(self) -> None:
        self._run(
            f"CREATE TABLE {self._table} USING iceberg TBLPROPERTIES ('format-version' = '{_FORMAT_VERSION}', "
            "'write.delete.mode' = 'merge-on-read', 'write.update.mode' = 'merge-on-read', "
            "'write.merge.mode' = 'merge-on-read') AS SELECT id, string(id) AS name FROM range(4)"
        )
        self._remember_folder(table_folder(self._spark, self._table).root.removesuffix("/data"))
        version = self._run(f"SHOW TBLPROPERTIES {self._table} ('format-version')")[0]["value"]
        if version != _FORMAT_VERSION:
            raise Failure(f"it created a table of version {version}")

    def change_rows(self) -> None:
        self._run(f"UPDATE {self._table} SET name = 'changed' WHERE id = 1")
        self._run(f"MERGE INTO {self._table} t USING (SELECT 2L AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE")

    def change_columns(self) -> None:
        self._run(f"ALTER TABLE {self._table} ADD COLUMN more INT")
        self._run(f"ALTER TABLE {self._table} ALTER COLUMN more TYPE BIGINT")
        self._run(f"ALTER TABLE {self._table} RENAME COLUMN more TO other")
        self._run(f"ALTER TABLE {self._table} DROP COLUMN other")

    def register_files(self) -> None:
        rows = pa.table({"id": pa.array([9], pa.int64()), "name": pa.array(["appended"])})
        file = write_file(table_folder(self._spark, self._table).new_subfolder(), rows)
        Committer(self._spark).add(f"{self.name}.t", [file.path])

    def publish_branch(self) -> None:
        self._run(f"ALTER TABLE {self._table} CREATE BRANCH staged")
        self._run(f"INSERT INTO {self._table}.branch_staged VALUES (10, 'staged')")
        self._run(f"SELECT name, snapshot_id FROM {self._table}.refs")
        self._run(f"CALL {self.catalog}.system.fast_forward('{self._table}', 'main', 'staged')")
        self._run(f"ALTER TABLE {self._table} DROP BRANCH staged")

    def maintain_table(self) -> None:
        self._run(
            f"CALL {self.catalog}.system.rewrite_data_files(table => '{self._table}', branch => 'main', "
            "options => map('rewrite-all', 'true'))"
        )
        self._run(f"CALL {self.catalog}.system.expire_snapshots(table => '{self._table}', retain_last => 1)")

    def drop_table(self) -> None:
        self._run(f"DROP TABLE {self._table} PURGE")

    def remove(self) -> None:
        """Removes the view, the table and the namespace. Raises one of `_ERRORS` if the namespace can't be removed."""
        for statement in (f"DROP VIEW IF EXISTS {self._view}", f"DROP TABLE IF EXISTS {self._table} PURGE"):
            with suppress(*_ERRORS):
                self._run(statement)
        self._run(f"DROP NAMESPACE IF EXISTS {self._namespace}")
        if self._folder:
            with suppress(*_ERRORS):
                self._folder.remove()

    def _remember_folder(self, location: str) -> None:
        """Remembers the namespace's folder, if it has one, from the location of a view or table in it.

        Iceberg leaves the metadata files of a dropped view there, and on a local file system the folders.
        """
        parent = folder_of_location(location).root.rpartition("/")[0]
        if self.name in parent.rpartition("/")[2]:
            self._folder = Folder(parent)

    def _run(self, statement: str) -> list[Row]:
        rows: list[list[Row]] = []
        retry_on_conflict(lambda: rows.append(self._spark.sql(statement).collect()), seconds=_RETRY_SECONDS)
        return rows[-1]


@dataclass(frozen=True)
class _Capability:
    """operation: completes "the catalog can't ...". reason: what needs it. advice: what may help."""

    operation: str
    reason: str
    attempt: Callable[[_Scratch], None]
    advice: str = ""


_NAMESPACES = _Capability(
    "create namespaces",
    "Tidemark uses raw, core, staging and buckets, and a scratch namespace for this check",
    _Scratch.create_namespace,
    "Check the catalog and the permissions of its role",
)
_VIEWS = _Capability(
    "create and replace views",
    "The staging views are views of the catalog",
    _Scratch.create_views,
    "Set Iceberg's spark.sql.extensions, and for JDBC jdbc.schema-version: V1, as `tidemark init` writes it",
)
_TABLES = _Capability(
    f"create tables of format version {_FORMAT_VERSION}",
    "All tables have this version",
    _Scratch.create_table,
    "Use the Iceberg runtime that `tidemark init` names or a newer one, and no setting that overrides the version",
)
_TABLE_CAPABILITIES = (
    _Capability("update and delete rows", "Current rows are maintained this way", _Scratch.change_rows),
    _Capability("change the columns of a table", "Upgrades and edited definitions need this", _Scratch.change_columns),
    _Capability(
        "register data files that the jobs write",
        "Batches of events and snapshot rows are committed this way",
        _Scratch.register_files,
        "The jobs need access to the warehouse, by the same path or address as Spark",
    ),
    _Capability(
        "write to branches and fast-forward a table to one",
        "A run is published this way",
        _Scratch.publish_branch,
        "Set Iceberg's spark.sql.extensions, as `tidemark init` writes it",
    ),
    _Capability(
        "compact tables and expire snapshots", "`tidemark run` and `tidemark maintain` do this", _Scratch.maintain_table
    ),
    _Capability("drop tables", "The tables of deleted definitions are dropped", _Scratch.drop_table),
)


def find_missing_capabilities(spark: SparkSession) -> list[Finding]:
    """An error for each missing capability of the session's catalog; a warning if the scratch namespace stays."""
    return _try_capabilities(spark, with_tables=True)


def require_views(spark: SparkSession) -> None:
    """Raises Failure if the session's catalog can't create namespaces and views.

    Quick, because it creates no table. The models need views, the jobs don't: without this check, a catalog without
    views would accept a complete snapshot before the first run of the models fails.
    """
    for finding in _try_capabilities(spark, with_tables=False):
        if finding.level == "error":
            raise Failure(finding.what, finding.where, finding.fix)


def _try_capabilities(spark: SparkSession, *, with_tables: bool) -> list[Finding]:
    scratch = _Scratch(spark)
    if refusal := _try_capability(scratch, _NAMESPACES):
        # A role without the permission to create namespaces can work if all four exist. Nothing else can be tried then.
        return [replace(refusal, level="warning") if _schemas_exist(spark) else refusal]
    findings: list[Finding | None] = []
    try:
        findings.append(_try_capability(scratch, _VIEWS))
        if with_tables:
            findings.append(_try_capability(scratch, _TABLES))
            if findings[-1] is None:
                findings += [_try_capability(scratch, capability) for capability in _TABLE_CAPABILITIES]
    finally:
        findings.append(_remove_scratch(scratch))
    return [finding for finding in findings if finding]


def _schemas_exist(spark: SparkSession) -> bool:
    with suppress(*_ERRORS):
        return {row[0] for row in spark.sql("SHOW NAMESPACES").collect()} >= _SCHEMAS
    return False


def _try_capability(scratch: _Scratch, capability: _Capability) -> Finding | None:
    try:
        capability.attempt(scratch)
    except _ERRORS as error:
        raise_if_java_exited(error)
        what = f"the catalog can't {capability.operation} ({_summarize(error)})"
        parts = (capability.reason, capability.advice, _SEE_DOCS)
        return Finding("error", what, f"catalog {scratch.catalog}", ". ".join(filter(None, parts)))
    return None


_SEE_DOCS = "docs/reference/catalogs.md lists the catalogs that can"


def _remove_scratch(scratch: _Scratch) -> Finding | None:
    try:
        scratch.remove()
    except _ERRORS as error:
        what = f"the scratch namespace of the check can't be removed ({_summarize(error)})"
        return Finding("warning", what, f"namespace {scratch.catalog}.{scratch.name}", "Drop it with its content")
    return None


def _summarize(error: BaseException) -> str:
    return one_line(first_message_line(str(error)))[:300].rstrip(".")
