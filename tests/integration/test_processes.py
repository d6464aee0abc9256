"""The jobs as processes, as a scheduler runs them; they share only the lake."""

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ingest.config.job_settings import JobSettings
from ingest.config.sources_file import PostgresSource
from ingest.lake import Chunk, Lake
from ingest.lake.source_tables import DONE, RUNNING
from tests.conftest import Database
from tests.harness.commands import TIDEMARK, write_sources
from tests.harness.pgbench import assert_pgbench_equals, balances, have_ready_snapshots, pgbench, pgbench_tables
from tests.harness.pipeline import SourcePipeline
from tests.harness.postgres_jobs import PostgresJobs
from tests.harness.project_copy import ROOT

KILLS = 3
SETTINGS = {
    "snapshot_chunk_bytes": "1MiB",
    "snapshot_batch_bytes": "1MiB",
    "snapshot_workers": 1,
    "commit_interval_seconds": 0.2,
    "idle_position_seconds": 0.5,
}
BIG = (
    "create table big (id int primary key, filler text, note text);"
    "alter table big alter note set storage external;"
    "insert into big select i, repeat('f', 900), repeat('n', 2100) from generate_series(1, 3000) i"
)


def write_files(source: PostgresSource, folder: Path, lease: float = 60) -> str:
    """A sources.yml with this source, and a folder for the output of the processes."""
    (folder / "logs").mkdir()
    return str(write_sources(folder, source, settings={**SETTINGS, "chunk_lease_seconds": lease}))


def start_tidemark(folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
    """Starts a `tidemark` process whose output goes to its own file."""
    with (folder / f"{len(list(folder.iterdir()))}.log").open("wb") as log:
        return subprocess.Popen(
            [*TIDEMARK, *arguments], cwd=ROOT, env=dict(os.environ), stdout=log, stderr=log, start_new_session=True
        )


@contextmanager
def running(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Until SIGTERM to its process group, as supervisors send it; the process ends cleanly."""
    try:
        yield
        os.killpg(process.pid, signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()


def test_two_snapshot_processes_and_a_stream_complete_one_snapshot(
    lake: Lake, source: PostgresSource, settings: JobSettings, tmp_path: Path, database: Database
) -> None:
    database.execute(BIG)
    sources, logs = write_files(source, tmp_path), tmp_path / "logs"
    jobs = PostgresJobs(lake, source, settings)
    with running(start_tidemark(logs, "stream", "--sources", sources)):
        snapshots = [start_tidemark(logs, "snapshot", "--until-caught-up", "--sources", sources) for _ in range(2)]
        for n in range(1, 2000):
            if all(process.poll() is not None for process in snapshots):
                break
            database.execute("update big set id = -id where id = %s", [n])
            database.execute("delete from big where id = %s", [3001 - n])
            time.sleep(0.05)  # the rate of the load; no race depends on it
        assert [process.wait(300) for process in snapshots] == [0, 0]
    table = jobs.table("public.big")
    chunks = lake.chunks.read([str(table.snapshot_id)])
    assert {(chunk.state, chunk.attempt) for chunk in chunks} == {(DONE, 1)}
    assert len({str(chunk.owner).rpartition(":")[0] for chunk in chunks}) == 2, "one process read all chunks"
    jobs.stream()
    jobs.assert_equal("public.big")
    jobs.close()


def test_chunks_of_a_snapshot_process_paused_past_its_lease_are_ignored(
    lake: Lake, source: PostgresSource, settings: JobSettings, tmp_path: Path, database: Database
) -> None:
    database.execute(BIG)
    jobs = PostgresJobs(lake, source, settings.model_copy(update={"chunk_lease_seconds": 2.0}))
    sources, logs = write_files(source, tmp_path, lease=2), tmp_path / "logs"
    # Two processes read at two positions: the stream has the changes in between.
    with running(start_tidemark(logs, "stream", "--sources", sources)):
        paused = start_tidemark(logs, "snapshot", "--until-caught-up", "--sources", sources)
        try:
            before = _stopped_with_a_chunk(paused, jobs)
            other = jobs.snapshot()
            table = jobs.table("public.big")
            assert table.state == DONE
            chunks = {chunk.chunk: chunk for chunk in lake.chunks.read([str(table.snapshot_id)])}
            assert other.rows < 3000, "committed chunks were read again"
            assert all(chunks[number] == chunk for number, chunk in before.items() if chunk.state == DONE)
            assert any(chunk.attempt == 2 for chunk in chunks.values())
            paused.send_signal(signal.SIGCONT)
            assert paused.wait(120) == 0
        finally:
            paused.kill()
            paused.wait()
    assert jobs.table("public.big") == table, "it was marked done twice"
    assert {chunk.chunk: chunk for chunk in lake.chunks.read([str(table.snapshot_id)])} == chunks
    jobs.stream()
    jobs.assert_equal("public.big")
    jobs.close()


def _stopped_with_a_chunk(process: subprocess.Popen[bytes], jobs: PostgresJobs) -> dict[int, Chunk]:
    """Stops the process when it has marked one chunk done and claimed another; returns its table's chunks."""
    while process.poll() is None:
        process.send_signal(signal.SIGSTOP)
        running = [t for t in jobs.lake.tables.read(jobs.source.name).values() if t.snapshot_id]
        chunks = {c.chunk: c for c in jobs.lake.chunks.read([str(t.snapshot_id) for t in running])}
        if {RUNNING, DONE} <= {chunk.state for chunk in chunks.values()}:
            return chunks
        process.send_signal(signal.SIGCONT)
        time.sleep(0.2)  # until it has come that far
    raise AssertionError("it was done before it could be stopped")


def test_balances_agree_when_processes_are_killed(
    lake: Lake,
    new_source: Callable[..., PostgresSource],
    settings: JobSettings,
    tmp_path: Path,
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Three writers in two processes, two snapshot processes. A reading snapshot process and a stream process are
    killed repeatedly.
    """
    pgbench_tables(database)
    source = new_source(writers=3)
    pipeline = SourcePipeline(lake, source, settings, tmp_path / "project")
    monkeypatch.setenv("TIDEMARK_DRIVER_MEMORY", "1g")
    sources, logs = write_files(source, tmp_path, lease=5), tmp_path / "logs"
    commands = [("stream", "--writer", "1"), ("stream", "--writer", "2", "--writer", "3"), ("snapshot",), ("snapshot",)]
    processes = [start_tidemark(logs, *command, "--sources", sources) for command in commands]
    rng = random.Random(7)
    positions: dict[tuple[int, int], int] = {}
    checked: list[dict[str, int]] = []
    persisted = 0
    committed: list[Chunk] = []
    with pgbench(database, clients=8, rate=40):
        try:
            while not lake.sources.read_active_writers(source.name):
                time.sleep(0.5)  # until the first stream process has started
            for _ in range(KILLS):
                before = checked[-1:]
                while checked[-1:] == before:  # killed processes have restarted
                    pipeline.model()
                    if have_ready_snapshots(pipeline, 4):
                        checked.append(balances(pipeline))
                        assert len(set(checked[-1].values())) == 1, checked[-1]
                    stored = {(p.writer, p.start_position): p.position for p in lake.positions.read(source.name)}
                    assert all(stored[key] >= position for key, position in positions.items())
                    now = lake.persisted_position(source.name) or 0
                    assert now >= persisted
                    positions, persisted = stored, now
                    assert all(process.poll() is None for process in processes), (
                        f"a process ended by itself, see {logs}"
                    )
                assert lake.tables.queue_snapshots(source.name, "asked for", ["public.pgbench_accounts"])
                while (reading_process := _reading(lake, source, processes)) is None:
                    time.sleep(0.2)  # until a process has claimed a chunk
                committed += [chunk for chunk in _chunks(lake, source) if chunk.state == DONE]
                for victim in (reading_process, rng.randrange(2)):
                    processes[victim].kill()
                    processes[victim].wait()
                    processes[victim] = start_tidemark(logs, *commands[victim], "--sources", sources)
        finally:
            for process in processes:
                process.kill()
                process.wait()
    pipeline.sync()
    assert_pgbench_equals(pipeline, database)
    committed_now = {(c.snapshot_id, c.chunk): c for c in lake.chunks.read({chunk.snapshot_id for chunk in committed})}
    assert all(committed_now.get((c.snapshot_id, c.chunk), c) == c for c in committed), (
        "committed chunks were read again"
    )


def _chunks(lake: Lake, source: PostgresSource) -> list[Chunk]:
    """The chunks of the last snapshot of each table."""
    return lake.chunks.read([str(t.snapshot_id) for t in lake.tables.read(source.name).values() if t.snapshot_id])


def _reading(lake: Lake, source: PostgresSource, processes: list[subprocess.Popen[bytes]]) -> int | None:
    """The process that reads a chunk now."""
    pids = {int(str(chunk.owner).split(":")[1]) for chunk in _chunks(lake, source) if chunk.state == RUNNING}
    return next((number for number, process in enumerate(processes) if process.pid in pids), None)
