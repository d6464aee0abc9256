"""A source with one table: ingested by the real jobs, and modelled by a new dbt project with definitions of a
benchmark.
"""

import os
from pathlib import Path

from pydantic import SecretStr

from bench.environment import open_lake
from ingest.config.sources_file import PostgresSource, Settings
from ingest.new_project.new_project import NewProject
from ingest.pipeline.ingest_jobs import Jobs
from ingest.pipeline.run_loop import Pipeline
from ingest.project.dbt_project import Project

COLUMNS = {"id": "bigint", "customer": "int", "status": "string", "amount": "decimal(12, 2)", "email": "string"}

# dbt never closes its log file.
os.environ.setdefault("DBT_LOG_LEVEL_FILE", "none")


class BenchmarkProject:
    """The lake and the dbt project for `public.<table>` behind `dsn`, in `folder`."""

    def __init__(self, dsn: str, table: str, folder: str) -> None:
        self.lake = open_lake(folder)
        self.name = table
        source = PostgresSource(name=table, dsn=SecretStr(dsn), tables=(f"public.{table}",))
        self.settings = Settings(sources={table: source})
        self.project_folder = Path(folder) / "project"
        list(NewProject(self.project_folder, "postgres").write())
        casts = "".join(f",\n    cast(columns['{name}'] as {kind}) as {name}" for name, kind in COLUMNS.items())
        self.write_model(
            f"staging/stg_{table}",
            f"{{{{ config(meta={{'source': '{table}', 'table': 'public.{table}'}}) }}}}\n"
            f"select\n    row_key as _row_key,\n    checkpoint_id as _checkpoint_id{casts}\n"
            f"from {{{{ ref('row_state') }}}}\n"
            f"where source = '{table}' and table_name = 'public.{table}' and not deleted\n",
        )

    def write_model(self, path: str, text: str) -> None:
        """Writes models/<path>.sql; call `pipeline` again after it."""
        file = self.project_folder / "models" / f"{path}.sql"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def write_definition(self, name: str, bucket_by: str, condition: str = "true") -> None:
        """Writes a row-wise definition of all columns."""
        meta = {"bucket_by": [bucket_by], "object_type": "item", "object_id": "id", "evaluation": "incremental"}
        self.write_model(
            f"buckets/{name}",
            f"{{{{ config(materialized='bucket', meta={meta!r}) }}}}\n"
            f"select _row_key, {', '.join(COLUMNS)} from {{{{ tidemark.rows('stg_{self.name}') }}}}\n"
            f"where {condition}\n",
        )

    def pipeline(self) -> Pipeline:
        """The warm loop over the current project."""
        return Pipeline(self.lake, self.settings, self.project())

    def project(self) -> Project:
        """The current project."""
        return Project(folder=self.project_folder)

    def ingest(self) -> None:
        """Commits all changes of the source to the lake, including snapshots."""
        jobs = Jobs(self.lake, self.settings)
        with jobs.running():
            jobs.wait(until_caught_up=True)

    def count_rows(self, table: str) -> int:
        """The number of rows of a table."""
        return self.lake.spark.table(table).count()

    def snapshot_ids(self, tables: list[str]) -> dict[str, int]:
        """The published Iceberg snapshot of each table."""
        query = " union all ".join(
            f"select '{table}' as name, snapshot_id from {table}.refs where name = 'main'" for table in tables
        )
        return {row["name"]: row["snapshot_id"] for row in self.lake.spark.sql(query).collect()}
