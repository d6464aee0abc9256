"""The end of Spark's Java process is reported in one line with its cause; the next start continues."""

import os
import subprocess
from pathlib import Path

import psutil

from ingest.config.job_settings import JobSettings
from ingest.config.sources_file import PostgresSource
from ingest.lake import Lake
from tests.conftest import Database
from tests.harness.commands import TIDEMARK, write_sources
from tests.harness.postgres_jobs import PostgresJobs
from tests.harness.project_copy import ROOT


def test_a_killed_java_process_ends_the_command_with_one_line(
    lake: Lake, source: PostgresSource, settings: JobSettings, tmp_path: Path, database: Database
) -> None:
    database.execute("create table t (id int primary key); insert into t values (1)")
    jobs = PostgresJobs(lake, source, settings)
    jobs.settle()
    write_sources(tmp_path, source)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "DBT_PROFILES_DIR": str(ROOT / "profiles")}
    with subprocess.Popen(
        [*TIDEMARK, "stream"], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        database.awaited("select from pg_replication_slots where slot_name = %s and active", [source.slot])
        (java,) = [child for child in psutil.Process(process.pid).children() if child.name() == "java"]
        java.kill()
        database.execute("insert into t values (2)")
        shown = process.communicate(timeout=120)[1]
    assert process.returncode == 1
    (line,) = [line for line in shown.splitlines() if line.startswith("tidemark: ")]
    assert line.startswith("tidemark: Spark's Java process has ended (killed by SIGKILL): logs/spark.log. ")
    assert "Traceback" not in shown
    assert "unexpected error" not in shown
    database.slot_released(source.slot)
    jobs.settle()
    jobs.assert_equal("public.t")
