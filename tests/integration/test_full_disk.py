"""On a full or read-only disk `tidemark run` logs short lines, waits, and continues without a restart."""

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from ingest.config.job_settings import JobSettings
from ingest.config.sources_file import PostgresSource
from ingest.lake import Lake
from tests.conftest import Database
from tests.harness.commands import TIDEMARK, write_sources
from tests.harness.disks import small_disk
from tests.harness.pipeline import SourcePipeline
from tests.harness.project_copy import ROOT

# Shorter than any line with a Java stack trace.
LONGEST_LINE = 1500


def test_run_waits_for_a_full_or_read_only_disk_and_continues(
    lake: Lake, source: PostgresSource, settings: JobSettings, tmp_path: Path, database: Database
) -> None:
    database.execute("create table t (id int primary key, v text); insert into t values (0, 'first')")
    (tmp_path / "disk").mkdir()
    with small_disk(tmp_path / "disk", 400) as disk:
        # The lake, logs/ and target/ are on this disk.
        pipeline = SourcePipeline(lake, source, settings, disk.outside)
        view = pipeline.view("t", {"id": "int", "v": "string"})
        query = f"select _row_key, id, v from {{{{ rows('{view}') }}}}"
        rows = pipeline.definition("rows", query, bucket_by=[], object_id="id", evaluation="incremental")
        write_sources(disk.outside, source, settings=settings.model_dump(mode="json"))
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "TIDEMARK_LAKE": str(disk.folder / "lake")}
        shown = tmp_path / "shown"
        command = [*disk.command, *TIDEMARK]
        with (
            shown.open("w") as stderr,
            subprocess.Popen([*command, "run"], env=environment, stderr=stderr) as process,
        ):

            def wait_until(condition: Callable[[str], bool]) -> None:
                deadline = time.monotonic() + 240
                while not condition(shown.read_text()):
                    assert process.poll() is None, shown.read_text()
                    assert time.monotonic() < deadline, shown.read_text()
                    time.sleep(0.1)

            def count_changed_rows() -> int:
                return len(re.findall(rf"{rows}: .*PUT", shown.read_text()))

            def assert_waits(message: str, begin: Callable[[], None], end: Callable[[], None], row: int) -> None:
                before = count_changed_rows()
                begin()
                database.execute(f"insert into t select {row}, repeat('x', 100000); delete from t where id = {row - 1}")
                wait_until(lambda text: f"source {source.name}: {message}" in text)
                database.execute(f"insert into t select {row + 1}, 'more'")
                end()
                wait_until(lambda _: count_changed_rows() > before)

            def read_published_rows() -> list[tuple[int, str]]:
                done = subprocess.run(
                    [*command, "ops", rows], env=environment, capture_output=True, text=True, check=True
                )
                return replay(done.stdout)

            try:
                wait_until(lambda _: count_changed_rows() > 0)
                assert_waits("no space is left on the disk", disk.fill, disk.free, 1)
                read_only, writable = (partial(disk.set_read_only, read_only) for read_only in (True, False))
                assert_waits("the file system is read-only", read_only, writable, 3)
                wait_until(lambda _: read_published_rows() == database.execute("select id, v from t order by 1"))
                process.send_signal(signal.SIGTERM)
                assert process.wait(120) == 0
            finally:
                process.kill()
    lines = shown.read_text().splitlines()
    assert max(map(len, lines)) < LONGEST_LINE
    for sign in ("Traceback", "unexpected error", "org.apache", "dbt build"):
        assert not any(sign in line for line in lines), shown.read_text()


def replay(ops: str) -> list[tuple[int, str]]:
    """The rows that result from the lines of `tidemark ops`."""
    rows = {}
    for line in ops.splitlines():
        op = json.loads(line)
        if op["op"] == "PUT":
            rows[op["row_key"]] = json.loads(op["data"])
        elif op["op"] == "REMOVE":
            del rows[op["row_key"]]
    return sorted((row["id"], row["v"]) for row in rows.values())
