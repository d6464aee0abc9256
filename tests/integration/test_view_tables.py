"""Definitions over a staging view that now shows another table keep their release until the change is confirmed."""

from pathlib import Path

import pytest

from ingest.codegen.view_trial import ViewTrial
from ingest.commands.check import check_project
from ingest.commands.codegen import Codegen
from ingest.common.errors import Failure
from ingest.config.job_settings import JobSettings
from ingest.config.sources_file import PostgresSource
from ingest.lake import Lake
from ingest.project import definition_plan
from tests.conftest import Database
from tests.harness.pipeline import SourcePipeline

NEWCOMER = 'create schema "order"; create table "order".lines (id int primary key, v text)'


@pytest.fixture
def pipeline(
    lake: Lake, source: PostgresSource, settings: JobSettings, tmp_path: Path, database: Database
) -> SourcePipeline:
    """public.order__lines in the source, and a definition over the view that codegen writes for it."""
    database.execute("create table order__lines (id int primary key, v text); insert into order__lines values (1, 'a')")
    every = source.model_copy(update={"tables": ("public.*", "order.*")})
    pipeline = SourcePipeline(lake, every, settings, tmp_path)
    write_views(pipeline)
    define(pipeline, "every", f"stg_{source.name}__order__lines")
    return pipeline


def write_views(pipeline: SourcePipeline) -> list[str]:
    codegen = Codegen(ViewTrial(lambda: pipeline.spark).try_view, pipeline.folder / "models/staging")
    return codegen.write(pipeline.source, pipeline.settings.settings).lines


def define(pipeline: SourcePipeline, name: str, view: str) -> str:
    query = f"select _row_key, id, v from {{{{ rows('{view}') }}}}"
    return pipeline.definition(name, query, bucket_by=[], object_id="id", evaluation="incremental")


def show(pipeline: SourcePipeline, table: str, replaces: str = "") -> None:
    """Changes the table of the view by hand, as codegen doesn't."""
    accepted = f", 'replaces': '{pipeline.source.name}.{replaces}'" if replaces else ""
    pipeline.write(
        f"models/staging/stg_{pipeline.source.name}__order__lines.sql",
        f"{{{{ config(meta={{'source': '{pipeline.source.name}', 'table': '{table}'{accepted}}}) }}}}\n"
        "select row_key as _row_key, checkpoint_id as _checkpoint_id, columns['id'] as id, columns['v'] as v\n"
        f"from {{{{ ref('row_state') }}}}\n"
        f"where source = '{pipeline.source.name}' and table_name = '{table}' and not deleted\n",
    )


def test_a_new_table_takes_no_used_name_and_a_changed_view_is_refused(
    pipeline: SourcePipeline, database: Database
) -> None:
    source = pipeline.source.name
    view, every = f"stg_{source}__order__lines", f"every_{source}"
    pipeline.sync()
    database.execute(
        f"{NEWCOMER}; insert into \"order\".lines values (7, 'z'); insert into order__lines values (2, 'b')"
    )
    wrote, *_ = write_views(pipeline)
    newcomer = Path(wrote.removeprefix("wrote ")).stem
    assert newcomer.startswith(f"{view}_")
    others = define(pipeline, "others", newcomer)
    pipeline.sync()
    assert pipeline.rows(f"select v from buckets.{every}") == [("a",), ("b",)]
    assert pipeline.rows(f"select v from buckets.{others}") == [("z",)]

    show(pipeline, "order.lines")
    database.execute("insert into order__lines values (3, 'c'); insert into \"order\".lines values (8, 'y')")
    now, before = f"{source}.order.lines", f"{source}.public.order__lines"
    message = f"{view} shows {now}, but {before} when {every} was published"
    with pytest.raises(Failure, match=message.replace(".", r"\.")) as refused:
        pipeline.sync()
    assert f"set meta.replaces of the view to '{before}'" in str(refused.value)
    assert pipeline.rows(f"select v from buckets.{every}") == [("a",), ("b",)]
    assert pipeline.rows(f"select v from buckets.{others}") == [("y",), ("z",)]
    steps = {step.definition: step for step in definition_plan.make_plan(pipeline.spark, folder=pipeline.folder)}
    assert (steps[every].state, steps[others].state) == ("invalid", "unchanged")
    assert message in steps[every].reason
    errors = [
        str(finding)
        for finding in check_project(pipeline.settings, folder=pipeline.folder).findings
        if finding.level == "error"
    ]
    assert errors[0].startswith(f"{message}: models/buckets/{every}.sql. Read a view of the intended table")

    both = ("run", "--select", view, every)
    # A full refresh does not confirm it, nor does the name of a table other than the replaced one.
    show(pipeline, "order.lines", replaces="public.others")
    with pytest.raises(Failure, match="was published"):
        pipeline.model(*both, "--full-refresh")
    show(pipeline, "order.lines", replaces="public.order__lines")
    pipeline.model(*both)
    assert pipeline.rows(f"select v from buckets.{every}") == [("y",), ("z",)]
    assert pipeline.replayed(every) == pipeline.logged_rows(every)
    assert not [
        finding
        for finding in check_project(pipeline.settings, folder=pipeline.folder).findings
        if finding.level == "error"
    ]
    # The confirmation is needed once: without it no evaluation follows; the way back is another change.
    show(pipeline, "order.lines")
    assert pipeline.model(*both)[every].message == "unchanged"
    show(pipeline, "public.order__lines")
    with pytest.raises(Failure, match=f"{view} shows {before}, but {now} when"):
        pipeline.model(*both)


def test_maintenance_keeps_the_recorded_tables_of_views(pipeline: SourcePipeline, database: Database) -> None:
    source = pipeline.source.name
    every = f"every_{source}"
    pipeline.sync()
    shown = f"select view_tables from core.model_watermarks where model = '{every}'"
    recorded = [(f'{{"stg_{source}__order__lines": "{source}.public.order__lines"}}',)]
    assert pipeline.rows(shown) == recorded
    database.execute("update order__lines set v = 'b'")
    pipeline.sync()
    pipeline.project.run_operation(
        "maintain", superseded_share=0.01, small_files=1, keep_seconds=0.0, iceberg_snapshot_retention_seconds=0.0
    )
    assert pipeline.rows(shown) == recorded
    show(pipeline, "order.lines")
    with pytest.raises(Failure, match="was published"):
        pipeline.model("run", "--select", every)
