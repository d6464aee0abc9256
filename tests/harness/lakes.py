"""A folder with a lake, restored to a saved state for each test.

Iceberg's files refer to each other by absolute paths, so the folder stays the same.
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
from tests.harness.project_copy import make_project

# The catalog's tables, and the column with the schema's name.
_COLUMNS = {"iceberg_tables": "table_namespace", "iceberg_namespace_properties": "namespace"}


@dataclass(frozen=True)
class _SavedSchema:
    """A schema of a lake: a copy of its folder, with the same name, and its rows in each table of the catalog."""

    files: Path
    rows: dict[str, list[tuple[object, ...]]]


class LakeFolder:
    """A lake on local files with a catalog in SQLite. No process may write to it while it is saved or restored."""

    def __init__(self, spark: SparkSession, folder: Path, copies: Path) -> None:
        """folder: the lake. copies: the folder of the saved states."""
        self._spark, self.folder, self._copies = spark, folder, copies

    def empty(self) -> "EmptyLake":
        """The lake with empty raw tables and no other tables."""
        self._restore(self._raw)
        return EmptyLake(self._spark, self)

    def prepare(self, project: Path) -> None:
        """Adds the tables of a run without sources, unless they exist, and dbt's cache of parsed files.

        project: one without definitions (`make_project`).
        """
        core, parsed = self._core
        if not (self.folder / "core").exists():
            self._copy_in(core)
        (project / "target").mkdir()
        shutil.copy(parsed, project / "target")

    @cached_property
    def _raw(self) -> _SavedSchema:
        Lake(self._spark)
        return self._save("raw", "empty")

    @cached_property
    def _core(self) -> tuple[_SavedSchema, Path]:
        previous = self._save("raw", "before")
        self._restore(self._raw)
        project = self._copies / "project"
        make_project(project)
        Project(folder=project).invoke("run")
        core = self._save("core", "empty")
        self._restore(previous)
        return core, project / "target/partial_parse.msgpack"

    def _save(self, schema: str, name: str) -> _SavedSchema:
        with self._catalog() as catalog:
            rows = {
                table: catalog.execute(f"select * from {table} where {column} = ?", [schema]).fetchall()
                for table, column in _COLUMNS.items()
            }
        copy = self._copies / name / schema
        shutil.rmtree(copy, ignore_errors=True)  # left by a failed preparation
        return _SavedSchema(shutil.copytree(self.folder / schema, copy), rows)

    def _restore(self, saved: _SavedSchema) -> None:
        """The lake has the saved schema and no other."""
        with self._catalog() as catalog:
            for table in _COLUMNS:
                catalog.execute(f"delete from {table}")
        for path in self.folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
        self._copy_in(saved)

    def _copy_in(self, saved: _SavedSchema) -> None:
        shutil.copytree(saved.files, self.folder / saved.files.name)
        with self._catalog() as catalog:
            for table, rows in saved.rows.items():
                placeholders = ", ".join("?" * len(rows[0]))
                catalog.executemany(f"insert into {table} values ({placeholders})", rows)

    @contextmanager
    def _catalog(self) -> Iterator[sqlite3.Connection]:
        """A connection to the catalog, in a transaction."""
        with closing(sqlite3.connect(self.folder / "catalog.db", timeout=30)) as connection, connection:
            yield connection


class EmptyLake(Lake):
    """A lake without rows. A project that is prepared for it has the empty tables of its models."""

    def __init__(self, spark: SparkSession, folder: LakeFolder) -> None:
        super().__init__(spark)
        self.prepare = folder.prepare
