"""A row that fits into Spark's heap is replicated; a larger row is refused by name, without loss of data."""

import json
import sys
from pathlib import Path
from typing import Any

from ingest.config.job_settings import JobSettings
from ingest.config.sources_file import PostgresSource
from tests.harness.commands import run_command, write_sources
from tests.harness.project_copy import make_project


def test_a_row_fits_into_the_heap_or_is_refused(source: PostgresSource, settings: JobSettings, tmp_path: Path) -> None:
    make_project(tmp_path)
    write_sources(tmp_path, source, settings=settings.model_dump(mode="json"))
    output, log = run_with_small_heap(tmp_path, "tests.harness.large_rows")
    large = int(output["largest"] * 0.95) // 32 * 32
    assert output["before"] == [["public.kept", '["1"]', "2", large], ["public.small", '["1"]', "1", None]]
    assert output["after"] == [
        ["public.kept", '["1"]', "3", large],
        ["public.small", '["1"]', "1", None],
        ["public.small", '["2"]', "2", None],
    ]
    assert "larger than Spark's heap has room for" in output["failure"]
    assert f'source {source.name}, table public.grown, key ["1"]' in output["failure"]
    assert "TIDEMARK_DRIVER_MEMORY" in output["failure"]
    assert "public.left_out can't be read: a row of" in log


def test_large_raw_events_are_compacted_within_the_heap(tmp_path: Path) -> None:
    make_project(tmp_path)
    output, _ = run_with_small_heap(tmp_path, "tests.harness.large_events")
    assert output["lines"] == ["raw.wal_events: 60 small files compacted"]
    assert output["before"] == output["after"] == [120, 120 * (12 << 20)]


def run_with_small_heap(folder: Path, module: str) -> tuple[dict[str, Any], str]:
    """Runs a module in a project, with a heap of 1 GB; returns the JSON that it prints last, and its log."""
    process = run_command(
        folder,
        *(sys.executable, "-m", module),
        TIDEMARK_LAKE=str(folder / "lake"),
        TIDEMARK_DRIVER_MEMORY="1g",
    )
    log = process.stderr + process.stdout
    assert process.returncode == 0, log
    return json.loads(process.stdout.splitlines()[-1]), log
