"""A dbt snapshot over a definition: what it reads and writes, within the build of a run and after the release."""

from pathlib import Path

import pytest

from ingest.common.errors import Failure
from ingest.config.job_settings import JobSettings
from ingest.config.sources_file import PostgresSource
from ingest.lake import Lake
from tests.conftest import Database
from tests.harness.pipeline import SourcePipeline

SNAPSHOT = """
snapshots:
  - name: {name}
    relation: ref('{definition}')
    config:
      schema: history
      file_format: iceberg
      unique_key: id
      strategy: check
      check_cols: [total]
      hard_deletes: invalidate
"""


def test_a_dbt_snapshot_over_a_definition_keeps_old_versions(
    lake: Lake, source: PostgresSource, settings: JobSettings, tmp_path: Path, database: Database
) -> None:
    database.execute("create table orders (id int primary key, total int); insert into orders values (1, 10), (2, 20)")
    pipeline = SourcePipeline(lake, source, settings, tmp_path)
    view = pipeline.view("orders", {"id": "int", "total": "int"})
    query = f"select _row_key, id, total from {{{{ rows('{view}') }}}}"
    definition = pipeline.definition("kept", query, bucket_by=[], object_id="id", evaluation="incremental")
    kept = f"history_{source.name}"
    pipeline.write(f"snapshots/{kept}.yml", SNAPSHOT.format(name=kept, definition=definition))
    versions = f"select id, total, dbt_valid_to is null from history.{kept}"
    after_release = ("build", "--exclude", "resource_type:snapshot")

    pipeline.ingest()
    pipeline.model(*after_release)
    pipeline.model("snapshot")
    assert pipeline.rows(versions) == [(1, 10, True), (2, 20, True)]
    database.execute("update orders set total = 11 where id = 1; delete from orders where id = 2")
    pipeline.ingest()
    pipeline.model(*after_release)
    pipeline.model("snapshot")
    assert pipeline.rows(versions) == [(1, 10, False), (1, 11, True), (2, 20, False)]

    # In the same build the snapshot reads the staged rows of the run. A failed test of the definition skips the
    # snapshot.
    refused = pipeline.write(
        f"tests/data_tests/refuse_{definition}.sql", f"select 1 from {{{{ ref('{definition}') }}}}"
    )
    database.execute("update orders set total = 12 where id = 1")
    pipeline.ingest()
    with pytest.raises(Failure, match=refused):
        pipeline.model()
    assert pipeline.rows(versions) == [(1, 10, False), (1, 11, True), (2, 20, False)]
    pipeline.remove(f"tests/data_tests/{refused}.sql")
    pipeline.model()
    assert pipeline.rows(versions) == [(1, 10, False), (1, 11, False), (1, 12, True), (2, 20, False)]
