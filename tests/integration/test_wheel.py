"""A wheel in an empty environment is all that the quickstart needs; its commands print what the page shows."""

import json
import os
import re
import shlex
import subprocess
import sys
import sysconfig
import textwrap
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Database
from tests.harness.project_copy import ROOT

PAGE = (ROOT / "docs/quickstart.md").read_text()
# SQL that the page gives to psql, a definition, or commands with their output.
STEP = re.compile(
    r"<<'SQL'\n(?P<sql>.*?)^SQL$|^(?P<definition>    \{\{ config.*?)^(?! )|^```console\n(?P<session>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
# What differs between databases and runs: positions, durations, checkpoints, server and database, and so the width of a
# column.
VARIABLE = re.compile(r"\b0/[0-9A-F]+|[\d.]+ s\b|\"checkpoint_id\":\d+|\S+/\S+ +PostgreSQL \S+| {2,}")
# The time before each line of the log.
LOG_PREFIX = re.compile(r"^\d\d:\d\d:\d\d ")


class Environment:
    """An environment with the wheel, beside the packages of this one, and a shell's variables in it."""

    def __init__(self, folder: Path, dsn: str) -> None:
        wheels, self._folder = folder / "wheels", folder / "environment"
        subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", wheels], cwd=ROOT, check=True)
        (wheel,) = wheels.glob("*.whl")
        venv.create(self._folder, with_pip=False)
        python = self._folder / "bin/python"
        install = ["uv", "pip", "install", "--quiet", "--offline", "--no-deps", "--python", str(python), str(wheel)]
        subprocess.run([sys.executable, "-m", *install], check=True)
        (site_packages,) = self._folder.glob("lib/*/site-packages")
        (site_packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
        kept = {
            name: value
            for name, value in os.environ.items()
            if name == "TIDEMARK_JAVA_OPTIONS" or not name.startswith(("PYTHON", "DBT_", "TIDEMARK_"))
        }
        self._variables = {**kept, "SHOP_DSN": dsn}

    def run(self, folder: Path, *command: str) -> tuple[str, str]:
        """Runs a command of the environment; returns what it printed, and its log."""
        result = subprocess.run(
            [self._folder / "bin/python", "-c", ENTRY_POINTS[command[0]], *command[1:]],
            cwd=folder,
            env={**self._variables, "PWD": str(folder)},  # as a shell sets it: the lake is in the project
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == 0, f"{command}: {result.stdout}{result.stderr}"
        return result.stdout, result.stderr


ENTRY_POINTS = {
    "tidemark": "from ingest.cli.main import main; main()",
    "dbt": "from dbt.cli.main import cli; cli()",
}


def parse_session(session: str) -> Iterator[tuple[list[str], str]]:
    """The commands of a console, each with its output."""
    for part in session.removeprefix("$ ").split("\n$ "):
        command, _, output = part.partition("\n")
        yield shlex.split(command), output


def normalize(output: str) -> list[str]:
    """The lines of an output without what differs between databases and runs."""
    return [VARIABLE.sub("*", line) for line in output.splitlines()]


@pytest.fixture
def environment(tmp_path: Path, database: Database) -> Environment:
    return Environment(tmp_path, database.dsn)


def test_the_quickstart_works_with_nothing_but_the_wheel(
    environment: Environment, tmp_path: Path, database: Database
) -> None:
    folder, definition = tmp_path, tmp_path / "shop/models/buckets/customer_orders.sql"
    for step in STEP.finditer(PAGE):
        if step["sql"]:
            database.execute(step["sql"])
        elif step["definition"]:
            definition.write_text(textwrap.dedent(step["definition"]))
        for command, expected in parse_session(step["session"]) if step["session"] else ():
            if command[0] == "cd":
                folder /= command[1]
                continue
            if command[1] == "plan":  # the page says to remove the last line of the definition
                definition.write_text("".join(definition.read_text().splitlines(keepends=True)[:-1]))
            printed, log = environment.run(folder, *command)
            if command[1] == "run":
                lines = {LOG_PREFIX.sub("", line) for line in normalize(log)}
                assert set(normalize(expected)) <= lines, log
            else:
                assert normalize(printed) == normalize(expected), command
    assert "shop.buckets.customer_orders" in environment.run(folder, "dbt", "--quiet", "ls")[0].split()
    assert "PASS freshness of shop.orders" in environment.run(folder, "dbt", "source", "freshness")[0]
    definition.write_text(f"{definition.read_text()}where id > 2\n")
    environment.run(folder, "dbt", "build")
    ops = [
        json.loads(line)
        for line in environment.run(folder, "tidemark", "ops", "customer_orders", "42", "--after", "6")[0].splitlines()
    ]
    assert [(op["op"], op["object_id"]) for op in ops] == [("REMOVE", "2")]
