"""Missing capabilities of the catalog are reported by name; the check removes its scratch namespace."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ingest.common.errors import Failure
from ingest.lake import Lake, catalog_capabilities

NewCatalog = Callable[..., SparkSession]


@pytest.fixture
def new_catalog(spark: SparkSession, tmp_path: Path) -> NewCatalog:
    """A session on another catalog in the test's folder, with these settings."""

    def make(name: str, **settings: str) -> SparkSession:
        own = spark.newSession()
        prefix = f"spark.sql.catalog.{name}"
        own.conf.set(prefix, "org.apache.iceberg.spark.SparkCatalog")
        for key, value in {"cache-enabled": "false", "warehouse": str(tmp_path / name), **settings}.items():
            own.conf.set(f"{prefix}.{key}", value)
        own.sql(f"SET CATALOG {name}")
        return own

    return make


def remaining_objects(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() or catalog_capabilities.PREFIX in path.name]


def test_the_default_catalog_passes_and_the_check_cleans_up(lake: Lake, lake_folder: Path) -> None:
    assert catalog_capabilities.find_missing_capabilities(lake.spark) == []
    assert [
        row[0] for row in lake.spark.sql("show namespaces").collect() if catalog_capabilities.PREFIX in row[0]
    ] == []
    assert [path for path in lake_folder.rglob("*") if catalog_capabilities.PREFIX in path.name] == []


def test_a_hadoop_catalog_is_refused_for_its_lack_of_views(new_catalog: NewCatalog, tmp_path: Path) -> None:
    spark = new_catalog("files", type="hadoop")
    (finding,) = catalog_capabilities.find_missing_capabilities(spark)
    assert finding.level == "error"
    assert str(finding) == (
        "the catalog can't create and replace views (Creating a view is not supported by catalog: files): "
        "catalog files. The staging views are views of the catalog. Set Iceberg's spark.sql.extensions, and for JDBC "
        "jdbc.schema-version: V1, as `tidemark init` writes it. docs/reference/catalogs.md lists the catalogs that can."
    )
    with pytest.raises(Failure) as failure:
        Lake(spark)
    assert str(failure.value) == str(finding)
    assert spark.sql("show namespaces").collect() == []
    assert remaining_objects(tmp_path) == []


def test_each_missing_capability_is_reported_and_the_check_continues(new_catalog: NewCatalog, tmp_path: Path) -> None:
    settings = {"uri": f"jdbc:sqlite:{tmp_path}/old.db", "table-override.format-version": "2"}
    spark = new_catalog("old", type="jdbc", **settings)
    views, tables = catalog_capabilities.find_missing_capabilities(spark)
    assert "can't create and replace views (" in views.what
    assert tables.what == "the catalog can't create tables of format version 3 (it created a table of version 2)"
    assert spark.sql("show namespaces").collect() == []
    assert remaining_objects(tmp_path) == [tmp_path / "old.db"]


def test_a_failed_step_of_the_check_leaves_no_objects(
    lake: Lake, lake_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog_capabilities, "write_file", lambda *_: (_ for _ in ()).throw(OSError("no access")))
    (finding,) = catalog_capabilities.find_missing_capabilities(lake.spark)
    assert finding.what == "the catalog can't register data files that the jobs write (no access)"
    assert [
        row[0] for row in lake.spark.sql("show namespaces").collect() if catalog_capabilities.PREFIX in row[0]
    ] == []
    assert [path for path in lake_folder.rglob("*") if catalog_capabilities.PREFIX in path.name] == []


def test_a_catalog_without_namespaces_gets_one_finding(new_catalog: NewCatalog, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    spark = new_catalog("closed", type="hadoop", warehouse=str(tmp_path / "file"))
    (finding,) = catalog_capabilities.find_missing_capabilities(spark)
    assert (finding.level, finding.where) == ("error", "catalog closed")
    assert finding.what.startswith("the catalog can't create namespaces (")
