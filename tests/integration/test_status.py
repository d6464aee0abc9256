"""`tidemark status`: lag, the last release, and what each definition last did."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from ingest.commands import status
from ingest.commands.resnapshot import queue_tables
from ingest.common.errors import Failure
from ingest.config.job_settings import JobSettings
from ingest.config.sources_file import PostgresSource, Settings
from ingest.lake import Lake
from ingest.sources.mongodb import mongodb_server
from tests.conftest import Database
from tests.harness.mongodb_jobs import Client, MongoJobs
from tests.harness.pipeline import SourcePipeline
from tests.harness.postgres_jobs import PostgresJobs
from tests.harness.waiting import wait_until


@pytest.fixture
def pipeline(
    lake: Lake, source: PostgresSource, settings: JobSettings, tmp_path: Path, database: Database
) -> SourcePipeline:
    database.execute("create table orders (id int primary key, note text)")
    database.execute("insert into orders select i, 'n' from generate_series(1, 9) i")
    return SourcePipeline(lake, source, settings, tmp_path)


def read_output(pipeline: SourcePipeline) -> tuple[dict[str, Any], dict[str, dict[str, Any]], dict[str, Any]]:
    """The JSON output: the source, the definitions by name without the source's, the release."""
    output = json.loads(status.read_status(pipeline.lake, pipeline.settings).to_json())
    definitions = {d["definition"].removesuffix(f"_{pipeline.source.name}"): d for d in output["definitions"]}
    return output["sources"][0], definitions, output["release"]


def test_status_shows_lag_and_the_state_of_each_definition(pipeline: SourcePipeline, database: Database) -> None:
    view = pipeline.view("orders", {"id": "int", "note": "string"})
    pipeline.definition(
        "good",
        f"select _row_key, id, note from {{{{ rows('{view}') }}}}",
        bucket_by=[],
        object_id="id",
        evaluation="incremental",
    )
    number = f"select id, cast(note as int) as number from {{{{ ref('{view}') }}}} where note <> 'n'"
    pipeline.definition("bad", number, bucket_by=[], object_id="id", unique_key=["id"])
    pipeline.sync()

    # Changes of other databases are not counted.
    database.execute("select pg_logical_emit_message(false, 'other', repeat('x', 10000))")
    source, definitions, release = read_output(pipeline)
    assert source["lag_bytes"] > 10000
    assert (source["lag_seconds"], source["unpublished_seconds"]) == (0, 0)
    assert 0 < release["age_seconds"] < 600
    good = definitions["good"]
    assert (good["state"], good["reason"]) == ("published", None)
    expected = {"kind": "full", "why": "new", "put": 9, "removed": 0, "rows": 9, "at": None}
    assert {**good["evaluation"], "at": None} == expected

    ((before,),) = database.execute("select extract(epoch from clock_timestamp())::float8")
    database.execute("update orders set note = 'x' where id = 1; delete from orders where id = 2")
    source, _, _ = read_output(pipeline)
    ((after,),) = database.execute("select extract(epoch from clock_timestamp())::float8")
    assert 0 < source["lag_seconds"] <= after - before
    pipeline.ingest()
    source, _, _ = read_output(pipeline)
    assert source["lag_seconds"] == 0
    assert source["unpublished_seconds"] > 0
    jobs = PostgresJobs(pipeline.lake, pipeline.source, pipeline.settings.settings)
    with jobs.streaming():
        began, position = time.time(), jobs.emit_marker()
        wait_until(lambda: (pipeline.lake.persisted_position(pipeline.source.name) or 0) > position)
        assert read_output(pipeline)[0]["lag_seconds"] <= time.time() - began

    # A failure is stored once and does not delay the other definition.
    failing = []
    for _ in range(2):
        with pytest.raises(Failure):
            pipeline.model()
        failing.append((read_output(pipeline)[1], pipeline.snapshot_ids("core.model_states")))
    assert failing[0][1] == failing[1][1]
    (definitions, _), (again, _) = failing
    assert definitions["bad"]["state"] == "failed"
    assert "'x'" in definitions["bad"]["reason"]
    assert again["bad"]["since"] == definitions["bad"]["since"]
    assert (definitions["good"]["state"], definitions["good"]["evaluation"]["kind"]) == ("published", "incremental")
    assert (definitions["good"]["evaluation"]["put"], definitions["good"]["evaluation"]["removed"]) == (1, 1)

    database.execute("update orders set note = '7' where id = 1")
    pipeline.sync()
    _, definitions, _ = read_output(pipeline)
    assert (definitions["bad"]["state"], definitions["bad"]["evaluation"]["put"]) == ("published", 1)
    snapshot_ids = pipeline.snapshot_ids("core.model_states", "core.releases")
    pipeline.model()
    assert pipeline.snapshot_ids("core.model_states", "core.releases") == snapshot_ids

    queue_tables(pipeline.lake, pipeline.settings, ["public.orders"])
    jobs.stream()
    pipeline.model()
    _, definitions, _ = read_output(pipeline)
    assert {d["state"] for d in definitions.values()} == {"waiting"}
    assert definitions["good"]["reason"] == f"waiting for {pipeline.source.name}.public.orders"


def test_the_lag_of_mongodb_uses_the_deployments_clock(
    lake: Lake, mongo_jobs: MongoJobs, mongo: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock of this machine is two hours ahead."""
    mongo[mongo_jobs.source.name].a.insert_one({"_id": 1})
    mongo_jobs.settle()
    stored = mongo_jobs.lake.persisted_position(mongo_jobs.source.name) or 0
    wait_until(lambda: (mongodb_server.operation_time(mongo) >> 32) > (stored >> 32))
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 7200)
    settings = Settings(sources={mongo_jobs.source.name: mongo_jobs.source}, settings=mongo_jobs.settings)
    (source_status,) = status.read_status(lake, settings).sources
    assert source_status.problem == ""
    assert source_status.lag_bytes is None
    assert source_status.lag_seconds is not None
    assert 1 <= source_status.lag_seconds < 600
