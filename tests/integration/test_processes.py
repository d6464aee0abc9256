"""The jobs as processes of their own, as a scheduler runs them: they share nothing but the lake."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ingest.config import PostgresSource
from ingest.lake import Lake
from ingest.lake.tables import DONE
from ingest.settings import JobSettings
from tests.conftest import Database
from tests.integration.replay import Jobs
from tests.integration.replica import ROOT

pytestmark = pytest.mark.slow

SETTINGS = "settings: {snapshot_chunk_bytes: 1MiB, snapshot_workers: 1, landing_seconds: 0.2, announce_seconds: 0.5}"


def tidemark(folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
    """A `tidemark` process; what it says goes to a file of its own."""
    command = [sys.executable, "-c", "from ingest.cli import main; main()", *arguments]
    with (folder / f"{len(list(folder.iterdir()))}.log").open("wb") as log:
        return subprocess.Popen(command, cwd=ROOT, env=dict(os.environ), stdout=log, stderr=log)


@contextmanager
def running(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Until SIGTERM, which ends it cleanly."""
    try:
        yield
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()


def test_two_snapshot_processes_and_a_stream_finish_one_snapshot_together(
    lake: Lake, source: PostgresSource, settings: JobSettings, tmp_path: Path, database: Database
) -> None:
    database.execute(
        "create table big (id int primary key, filler text, note text);"
        "alter table big alter note set storage external;"
        "insert into big select i, repeat('f', 900), repeat('n', 2100) from generate_series(1, 3000) i"
    )
    sources = tmp_path / "sources.yml"
    sources.write_text(
        f"sources:\n  {source.name}:\n    postgres: {{dsn: \"{database.dsn}\", tables: ['public.*'], "
        f"slot: {source.slot}, publication: {source.publication}}}\n{SETTINGS}\n"
    )
    (tmp_path / "logs").mkdir()
    logs = tmp_path / "logs"
    jobs = Jobs(lake, source, settings)
    with running(tidemark(logs, "stream", "--sources", str(sources))):
        snapshots = [tidemark(logs, "snapshot", "--until-caught-up", "--sources", str(sources)) for _ in range(2)]
        for n in range(1, 2000):
            if all(process.poll() is not None for process in snapshots):
                break
            database.execute("update big set id = -id where id = %s", [n])
            database.execute("delete from big where id = %s", [3001 - n])
            time.sleep(0.05)  # the load, no race
        assert [process.wait(300) for process in snapshots] == [0, 0]
    table = jobs.table("public.big")
    chunks = lake.chunks.read([str(table.snapshot_id)])
    assert {(chunk.state, chunk.attempt) for chunk in chunks} == {(DONE, 1)}
    assert len({str(chunk.owner).rpartition(":")[0] for chunk in chunks}) == 2, "one of them read all"
    jobs.stream()
    jobs.assert_equal("public.big")
    jobs.close()
