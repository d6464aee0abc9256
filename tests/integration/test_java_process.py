"""The end of Spark's Java process is reported in one line with its cause; the next start continues."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from ingest.config.job_settings import JobSettings
from ingest.config.sources_file import PostgresSource
from ingest.lake import Lake
from tests.conftest import Database
from tests.harness.commands import TIDEMARK, write_sources
from tests.harness.postgres_jobs import PostgresJobs
from tests.harness.project_copy import ROOT


@pytest.mark.parametrize("other_waits", [False, True], ids=["one source", "another source waits"])
def test_a_killed_java_process_ends_the_command_with_one_line(
    lake: Lake,
    source: PostgresSource,
    new_source: Callable[..., PostgresSource],
    settings: JobSettings,
    tmp_path: Path,
    database: Database,
    other_waits: bool,
) -> None:
    """other_waits: the jobs of another source are not opened yet, as its slot waits for an open transaction."""
    database.execute("create table t (id int primary key); insert into t values (1)")
    jobs = PostgresJobs(lake, source, settings)
    jobs.settle()
    write_sources(tmp_path, source, *([new_source()] if other_waits else []))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "DBT_PROFILES_DIR": str(ROOT / "profiles")}
    with database.connect(autocommit=False) as transaction:
        if other_waits:
            transaction.execute("insert into t values (3)")
        shown, code = kill_java_of_stream(database, source, tmp_path, environment)
    assert code == 1
    (line,) = [line for line in shown.splitlines() if line.startswith("tidemark: ")]
    assert line.startswith("tidemark: Spark's Java process has ended (killed by SIGKILL): logs/spark.log. ")
    assert "Traceback" not in shown
    assert "unexpected error" not in shown
    database.slot_released(source.slot)
    jobs.settle()
    jobs.assert_equal("public.t")


def kill_java_of_stream(
    database: Database, source: PostgresSource, folder: Path, environment: dict[str, str]
) -> tuple[str, int]:
    """Kills the Java process of `tidemark stream`; returns the output of the command and its exit code."""
    with subprocess.Popen(
        [*TIDEMARK, "stream"], cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            query = "select from pg_replication_slots where slot_name = %s and active"
            database.awaited(query, [source.slot], seconds=300)
            (java,) = [child for child in psutil.Process(process.pid).children() if child.name() == "java"]
            java.kill()
            database.execute("insert into t values (2)")
            shown = process.communicate(timeout=300)[1]
        finally:
            process.kill()
    return shown, process.returncode
