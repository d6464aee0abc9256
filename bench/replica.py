"""A source of one table on its way through a lake: landed by the real jobs, modelled by a copy of the real dbt project
with definitions that a benchmark makes up.
"""

import os
import shutil
from pathlib import Path

from pydantic import SecretStr

from bench.place import open_lake
from ingest.config.sources_file import PostgresSource, Settings
from ingest.pipeline.ingest_jobs import Jobs
from ingest.pipeline.run_loop import Pipeline
from ingest.project.dbt_project import Project

ROOT = Path(__file__).parents[1]
_SKELETON = ("dbt_project.yml", "macros", "profiles", "models/core", "models/raw", "tests/data_tests")
COLUMNS = {"id": "bigint", "customer": "int", "status": "string", "amount": "decimal(12, 2)", "email": "string"}

# dbt leaves its log file to the garbage collector.
os.environ.setdefault("DBT_LOG_LEVEL_FILE", "none")


class Replica:
    """Of `public.<table>` behind `dsn`, in `folder`: the lake, and the project."""

    def __init__(self, dsn: str, table: str, folder: str) -> None:
        self.lake = open_lake(folder)
        self.name = table
        source = PostgresSource(name=table, dsn=SecretStr(dsn), tables=(f"public.{table}",))
        self.settings = Settings(sources={table: source})
        self.project_folder = Path(folder) / "project"
        for part in _SKELETON:
            copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
            (self.project_folder / part).parent.mkdir(parents=True, exist_ok=True)
            copy(ROOT / part, self.project_folder / part)
        casts = "".join(f",\n    cast(columns['{name}'] as {kind}) as {name}" for name, kind in COLUMNS.items())
        self.model(
            f"staging/stg_{table}",
            f"{{{{ config(meta={{'source': '{table}', 'table': 'public.{table}'}}) }}}}\n"
            f"select\n    row_key as _row_key,\n    checkpoint_id as _checkpoint_id{casts}\n"
            f"from {{{{ ref('row_state') }}}}\n"
            f"where source = '{table}' and table_name = 'public.{table}' and not deleted\n",
        )

    def model(self, path: str, text: str) -> None:
        """Writes models/<path>.sql; `pipeline` has to be made anew after it."""
        file = self.project_folder / "models" / f"{path}.sql"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def definition(self, name: str, bucket_by: str, condition: str = "true") -> None:
        """Writes a row-wise definition of all columns."""
        meta = {"bucket_by": [bucket_by], "object_type": "item", "object_id": "id", "evaluation": "incremental"}
        self.model(
            f"buckets/{name}",
            f"{{{{ config(meta={meta!r}) }}}}\n"
            f"select _row_key, {', '.join(COLUMNS)} from {{{{ rows('stg_{self.name}') }}}} where {condition}\n",
        )

    def pipeline(self) -> Pipeline:
        """The warm loop over the project as it is now."""
        return Pipeline(self.lake, self.settings, self.project())

    def project(self) -> Project:
        """The project as it is now."""
        return Project(folder=self.project_folder)

    def land(self) -> None:
        """Land all that is committed, snapshots included."""
        jobs = Jobs(self.lake, self.settings)
        with jobs.running():
            jobs.wait(until_caught_up=True)

    def count(self, table: str) -> int:
        """How many rows a table has."""
        return self.lake.spark.table(table).count()

    def snapshot_ids(self, tables: list[str]) -> dict[str, int]:
        """The published Iceberg snapshot of each table."""
        query = " union all ".join(
            f"select '{table}' as name, snapshot_id from {table}.refs where name = 'main'" for table in tables
        )
        return {row["name"]: row["snapshot_id"] for row in self.lake.spark.sql(query).collect()}
