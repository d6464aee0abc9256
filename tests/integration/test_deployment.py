"""`tidemark run` keeps the project that it was started with until the project is deployed."""

import logging
from pathlib import Path

import pytest

from ingest.config.job_settings import JobSettings
from ingest.config.sources_file import PostgresSource
from ingest.lake import Lake
from ingest.pipeline.run_loop import Pipeline
from tests.conftest import Database
from tests.harness.pipeline import SourcePipeline


def test_an_edited_project_is_run_when_it_is_deployed(
    lake: Lake,
    source: PostgresSource,
    settings: JobSettings,
    tmp_path: Path,
    database: Database,
    caplog: pytest.LogCaptureFixture,
) -> None:
    database.execute("create table t (id int primary key); insert into t values (1), (2)")
    pipeline = SourcePipeline(lake, source, settings, tmp_path / "project")
    query = f"select _row_key, id from {{{{ rows('{pipeline.view('t', {'id': 'int'})}') }}}}"
    options = {"bucket_by": [], "object_id": "id", "evaluation": "incremental"}
    name = pipeline.definition("one", query, **options)
    pipeline.ingest()
    project = pipeline.project
    (tmp_path / "frozen").mkdir()
    project.freeze(tmp_path / "frozen")
    run_loop = Pipeline(lake, pipeline.settings, project)

    def changes() -> list[str]:
        return run_loop.model().changes

    assert changes() == [f"{name}: new, 2 rows evaluated, PUT 2, REMOVE 0"]
    pipeline.definition("one", f"{query} where id > 1", **options)
    settings_file = pipeline.folder / "dbt_project.yml"
    text = settings_file.read_text()
    settings_file.write_text("being edited: [")
    assert changes() == []
    run_loop.apply()
    with caplog.at_level(logging.ERROR):
        assert changes() == []
    assert "the project is not deployed, the last one stays: the dbt project can't be parsed" in caplog.text
    settings_file.write_text(text)
    assert changes() == []
    run_loop.apply()
    assert changes() == [f"{name}: definition changed, 2 rows evaluated, PUT 0, REMOVE 1"]
    assert changes() == []
