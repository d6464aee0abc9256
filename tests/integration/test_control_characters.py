"""A name with control characters can't forge a line in a log or in a command's output; JSON has the exact name."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from ingest.cli.main import cli
from ingest.config.sources_file import PostgresSource
from tests.conftest import Database
from tests.harness.commands import TIDEMARK, run_command, write_sources
from tests.harness.postgres_jobs import PostgresJobs
from tests.harness.project_copy import ROOT

NAME = "two\n00:00:00 lines \x1b[31m\u202e"
ESCAPED = r"public.two\n00:00:00 lines \x1b[31m\u202e"


def test_names_with_control_characters_are_escaped_in_logs_and_outputs(
    jobs: PostgresJobs,
    source: PostgresSource,
    tmp_path: Path,
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    database.execute(f'create table "{NAME}" (id int primary key); insert into "{NAME}" values (1)')
    jobs.stream()
    jobs.close()
    write_sources(tmp_path, source)
    profiles = str(ROOT / "profiles")
    done = run_command(tmp_path, *TIDEMARK, "snapshot", "--until-caught-up", DBT_PROFILES_DIR=profiles)
    assert done.returncode == 0, done.stderr
    shown = done.stderr.splitlines()
    assert f"snapshot of {ESCAPED} is complete: 1 rows" in done.stderr
    assert all(re.match(r"(?!00:00:00)\d\d:\d\d:\d\d ", line) for line in shown), shown
    written = (tmp_path / "logs/tidemark.log").read_text().splitlines()
    assert all(re.match(r"\d{4}-\d\d-\d\d ", line) for line in written), written

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DBT_PROFILES_DIR", profiles)
    monkeypatch.setenv("COLUMNS", "200")
    printed = CliRunner().invoke(cli, ["status"]).output
    assert ESCAPED in printed
    assert NAME not in printed
    (source_status,) = json.loads(CliRunner().invoke(cli, ["status", "--json"]).output)["sources"]
    assert [table["table"] for table in source_status["tables"]] == [f"public.{NAME}"]
