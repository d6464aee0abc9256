"""A source and its pipeline: ingested by the real jobs, modelled by a dbt project on the real package.

The project has the test's own staging views and definitions.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from ingest.config.job_settings import JobSettings
from ingest.config.sources_file import PostgresSource, Settings, Source
from ingest.lake import Lake
from ingest.pipeline.ingest_jobs import Jobs
from ingest.pipeline.run_loop import Pipeline
from ingest.project.dbt_project import NodeResult, Project
from tests.harness.lakes import EmptyLake
from tests.harness.project_copy import make_project

Row = tuple[Any, ...]


class SourcePipeline:
    """One source, its lake and its models. `sync` brings all committed changes to the outputs."""

    def __init__(
        self, lake: Lake, source: PostgresSource, settings: JobSettings, folder: Path, *others: Source
    ) -> None:
        """others: sources without views of their own."""
        self.source = source
        self.lake = lake
        self.spark: SparkSession = lake.spark
        self.settings = Settings(
            sources={each_source.name: each_source for each_source in (source, *others)}, settings=settings
        )
        self.folder = folder
        self._project: Project | None = None
        make_project(folder)
        if isinstance(lake, EmptyLake):
            lake.prepare(folder)

    def view(self, table: str, columns: Mapping[str, str]) -> str:
        """Adds a staging view of `public.<table>` that casts columns to types; returns its name."""
        name = f"stg_{self.source.name}__{table}"
        casts = "".join(f",\n    cast(columns['{c}'] as {t}) as {c}" for c, t in columns.items())
        return self.write(
            f"models/staging/{name}.sql",
            f"{{{{ config(meta={{'source': '{self.source.name}', 'table': 'public.{table}'}}) }}}}\n"
            f"select\n    row_key as _row_key,\n    checkpoint_id as _checkpoint_id{casts}\n"
            f"from {{{{ ref('row_state') }}}}\n"
            f"where source = '{self.source.name}' and table_name = 'public.{table}' and not deleted\n",
        )

    def definition(self, name: str, query: str, **meta: Any) -> str:
        """Adds or replaces a definition; returns its full name, which includes the source."""
        full = f"{name}_{self.source.name}"
        return self.write(f"models/buckets/{full}.sql", f"{{{{ config(meta={meta!r}) }}}}\n{query}\n")

    def write(self, path: str, text: str) -> str:
        """Writes a file of the project; returns its stem."""
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        self._project = None
        return file.stem

    def remove(self, path: str) -> None:
        """Removes a file of the project."""
        (self.folder / path).unlink()
        self._project = None

    @property
    def project(self) -> Project:
        """The project, parsed again after changes."""
        if self._project is None:
            self._project = Project(folder=self.folder)
        return self._project

    def ingest(self) -> None:
        """Commits all changes of the sources to the lake, snapshots included."""
        jobs = self.jobs()
        with jobs.running():
            jobs.wait(until_caught_up=True)

    def jobs(self) -> Jobs:
        """The stream writers and snapshot workers of its sources."""
        return Jobs(self.lake, self.settings)

    def model(self, *arguments: str) -> dict[str, NodeResult]:
        """Runs dbt: `build`, or the given command."""
        command = arguments or ("build",)
        return {outcome.name: outcome for outcome in self.project.invoke(*command)}

    def sync(self) -> dict[str, NodeResult]:
        """`ingest`, then `model`."""
        self.ingest()
        return self.model()

    def run_loop(self) -> Pipeline:
        """The run loop over this pipeline, which takes the project again when its files have changed."""
        return Pipeline(self.lake, self.settings, self.project, reload=True)

    def rows(self, query: str) -> list[Row]:
        """Sorted rows of a query on the lake."""
        return sort_rows(tuple(row) for row in self.spark.sql(query).collect())

    def bucket(self, definition: str, columns: str) -> list[Row]:
        """Sorted (bucket, *columns) of a definition's rows."""
        return self.rows(f"select bucket, {columns} from buckets.{definition}")

    def replayed(self, definition: str) -> list[Row]:
        """Sorted (bucket, object_id, row_key, data) after applying a definition's log op by op."""
        state: dict[Row, str] = {}
        targets: set[int] = set()
        cleared: set[str] = set()
        ops = self.spark.sql(f"select * from buckets.{definition}__ops order by op_id").collect()
        for number, op in enumerate(ops):
            key = (op.bucket, op.object_type, op.object_id, op.row_key)
            if op.op == "PUT":
                state[key] = op.data
            elif op.op == "REMOVE":
                # A REMOVE of a missing row is an error, unless its PUT is a MOVE now, or in a CLEAR.
                assert state.pop(key, None) is not None or op.op_id in targets or op.bucket in cleared
            elif op.op == "MOVE":
                targets.add(op.superseded_by)
            else:
                assert op.op == "CLEAR"
                cleared.add(op.bucket)
                assert all(before.bucket != op.bucket for before in ops[:number])
        assert len({op.op_id for op in ops}) == len(ops)
        return sort_rows((bucket, oid, key, data) for (bucket, _, oid, key), data in state.items())

    def logged_rows(self, definition: str) -> list[Row]:
        """The same from the definition's rows: each with the data of the op that wrote it."""
        return self.rows(
            f"select r.bucket, r.object_id, r.row_key, o.data from buckets.{definition} r "
            f"left join buckets.{definition}__ops o on r._op_id = o.op_id and r._checksum = o.checksum"
        )

    def snapshot_ids(self, *tables: str) -> dict[str, int]:
        """The Iceberg snapshot of each table's main branch."""
        return {
            table: self.spark.sql(f"select snapshot_id from {table}.refs where name = 'main'").collect()[0][0]
            for table in tables
        }


def sort_rows(rows: Iterable[Row]) -> list[Row]:
    """Sorts rows of any types, NULLs first, in the same order for lake and source."""
    return sorted(rows, key=lambda row: tuple((value is not None, str(value)) for value in row))
