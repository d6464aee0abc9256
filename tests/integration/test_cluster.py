"""The target `cluster`: the same jobs and models on a Spark Connect server in another process."""

import json
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest

from ingest.config.job_settings import JobSettings
from ingest.config.sources_file import PostgresSource
from ingest.devservers.server_process import PATIENCE, POLL
from ingest.lake import Lake
from ingest.lake.spark_session import read_settings as spark_settings
from tests.conftest import Database
from tests.harness.commands import TIDEMARK, run_command, write_sources
from tests.harness.pipeline import SourcePipeline
from tests.harness.project_copy import ROOT

_STARTED = re.compile(r"Spark Connect server started at: .*:(\d+)")


@contextmanager
def connect_server(folder: Path) -> Iterator[str]:
    """The address of a Spark Connect server with its own catalog in `folder`."""
    server_settings = {**spark_settings("local", ROOT / "profiles"), "spark.connect.grpc.binding.port": "0"}
    options = [part for key, value in server_settings.items() for part in ("--conf", f"{key}={value}")]
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    server = ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    log = folder / "server.log"
    with log.open("wb") as sink:
        process = subprocess.Popen([submit, *options, *server], stdout=sink, stderr=sink, cwd=folder)
    try:
        deadline = time.monotonic() + PATIENCE
        while not (match := _STARTED.search(log.read_text())):
            assert process.poll() is None, log.read_text()[-2000:]
            assert time.monotonic() < deadline, "the server did not start"
            time.sleep(POLL)
        yield f"sc://localhost:{match[1]}"
    finally:
        process.terminate()
        process.wait(PATIENCE)


def test_jobs_and_models_run_on_a_spark_connect_server(
    lake: Lake,
    source: PostgresSource,
    settings: JobSettings,
    database: Database,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pipeline = SourcePipeline(lake, source, settings, tmp_path)
    database.execute(
        "create table orders (id int primary key, customer int, status text, note text);"
        "alter table orders alter note set storage external;"
        "insert into orders select i, i % 5, 'open', repeat('x', 3000) from generate_series(1, 1000) i"
    )
    view = pipeline.view("orders", {"id": "int", "customer": "int", "status": "string", "note": "string"})
    name = pipeline.definition(
        "open_orders",
        f"select _row_key, id, customer, length(note) as size from {{{{ rows('{view}') }}}} where status = 'open'",
        bucket_by=["customer"],
        object_type="order",
        object_id="id",
        evaluation="incremental",
    )
    write_sources(pipeline.folder, source)
    monkeypatch.setenv("TIDEMARK_LAKE", str(tmp_path / "lake"))
    (tmp_path / "lake").mkdir()

    def run_tidemark(*arguments: str) -> str:
        done = run_command(tmp_path, *TIDEMARK, *arguments)
        assert done.returncode == 0, done.stderr
        assert "Warning" not in done.stderr
        return done.stdout

    with connect_server(tmp_path) as address:
        monkeypatch.setenv("TIDEMARK_TARGET", "cluster")
        monkeypatch.setenv("TIDEMARK_REMOTE", address)
        run_tidemark("run", "--until-caught-up")
        assert "it supports everything that Tidemark needs" in run_tidemark("check")
        database.execute("update orders set status = 'shipped' where id <= 10; delete from orders where id > 995")
        database.execute("update orders set id = 2000 where id = 20; update orders set id = 2001 where id = 2000")
        run_tidemark("run", "--until-caught-up")
        pipeline.definition(
            "numbers",
            f"select _row_key, id, cast(status as int) as number from {{{{ rows('{view}') }}}}",
            bucket_by=[],
            object_type="order",
            object_id="id",
            evaluation="incremental",
        )
        database.execute("update orders set status = 'lost' where id = 15")
        failed = run_command(tmp_path, *TIDEMARK, "run", "--until-caught-up")
        ops = [json.loads(line) for line in run_tidemark("ops", name, "0").splitlines()]
    put = {op["object_id"] for op in ops if op["op"] == "PUT"}
    removed = {op["object_id"] for op in ops if op["op"] == "REMOVE"}
    assert put - removed == {
        str(row[0]) for row in database.execute("select id from orders where customer = 0 and status = 'open'")
    }
    assert len(removed) == 5
    assert {json.loads(op["data"])["size"] for op in ops if op["object_id"] == "2001"} == {3000}
    assert failed.returncode == 1
    assert "numbers" in failed.stderr
    assert "CAST_INVALID_INPUT" in failed.stderr
