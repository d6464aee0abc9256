"""One folder with a lake, brought back to a saved state for each test.

Iceberg's files name each other by absolute paths, so the folder stays the same.
"""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pyspark.sql import SparkSession

from ingest.lake import Lake
from ingest.project.dbt_project import Project
from tests.harness.project_copy import copy_project

# The catalog's tables, and the column that names the schema.
_COLUMNS = {"iceberg_tables": "table_namespace", "iceberg_namespace_properties": "namespace"}


@dataclass(frozen=True)
class _Saved:
    """A schema of a lake: a copy of its folder, which has its name, and its rows in each table of the catalog."""

    files: Path
    rows: dict[str, list[tuple[object, ...]]]


class LakeFolder:
    """A lake on local files with a catalog on SQLite. No process may write to it while it is saved or restored."""

    def __init__(self, spark: SparkSession, folder: Path, copies: Path) -> None:
        """folder: the lake. copies: a folder for what is saved."""
        self._spark, self.folder, self._copies = spark, folder, copies

    def empty(self) -> "EmptyLake":
        """The lake with the raw tables, without rows, and nothing else."""
        self._hold(self._raw)
        return EmptyLake(self._spark, self)

    def prepare(self, project: Path) -> None:
        """Adds the tables of a run that found no source, unless a run was there, and what dbt keeps of parsed files.

        project: a copy of this project without definitions (`copy_project`).
        """
        core, parsed = self._core
        if not (self.folder / "core").exists():
            self._add(core)
        (project / "target").mkdir()
        shutil.copy(parsed, project / "target")

    @cached_property
    def _raw(self) -> _Saved:
        Lake(self._spark)
        return self._saved("raw", "empty")

    @cached_property
    def _core(self) -> tuple[_Saved, Path]:
        before = self._saved("raw", "before")
        self._hold(self._raw)
        project = self._copies / "project"
        copy_project(project)
        Project(folder=project).invoke("run")
        core = self._saved("core", "empty")
        self._hold(before)
        return core, project / "target/partial_parse.msgpack"

    def _saved(self, schema: str, name: str) -> _Saved:
        with self._catalog() as catalog:
            rows = {
                table: catalog.execute(f"select * from {table} where {column} = ?", [schema]).fetchall()
                for table, column in _COLUMNS.items()
            }
        copy = self._copies / name / schema
        shutil.rmtree(copy, ignore_errors=True)  # left by a preparation that failed
        return _Saved(shutil.copytree(self.folder / schema, copy), rows)

    def _hold(self, saved: _Saved) -> None:
        """The lake holds what was saved, and nothing else."""
        with self._catalog() as catalog:
            for table in _COLUMNS:
                catalog.execute(f"delete from {table}")
        for path in self.folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
        self._add(saved)

    def _add(self, saved: _Saved) -> None:
        shutil.copytree(saved.files, self.folder / saved.files.name)
        with self._catalog() as catalog:
            for table, rows in saved.rows.items():
                marks = ", ".join("?" * len(rows[0]))
                catalog.executemany(f"insert into {table} values ({marks})", rows)

    @contextmanager
    def _catalog(self) -> Iterator[sqlite3.Connection]:
        """A transaction."""
        with closing(sqlite3.connect(self.folder / "catalog.db", timeout=30)) as connection, connection:
            yield connection


class EmptyLake(Lake):
    """A lake that holds nothing yet. Projects that are made for it need not make the tables of the models."""

    def __init__(self, spark: SparkSession, folder: LakeFolder) -> None:
        super().__init__(spark)
        self.prepare = folder.prepare
