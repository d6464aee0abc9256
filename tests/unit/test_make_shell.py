"""`make shell`: the commands work as written in README.md."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project with links to the files and the environment of this one."""
    for name in ("Makefile", "dbt_project.yml", "profiles.yml", "profiles", "macros", "models"):
        (tmp_path / name).symlink_to(PROJECT / name)
    shutil.copytree(PROJECT / "tests/data_tests", tmp_path / "tests/data_tests")
    (tmp_path / ".venv").symlink_to(sys.prefix)
    return tmp_path


def make_shell(folder: Path, shell: str, commands: str) -> subprocess.CompletedProcess[str]:
    """Runs `make shell` with piped commands and the environment of a new user; `make setup` has already run."""
    return subprocess.run(
        ["make", "-s", "-o", "setup", "shell"],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "HOME": str(folder), "LC_ALL": "C.UTF-8", "SHELL": shell},
        input=commands,
        capture_output=True,
        text=True,
        check=False,
    )


def test_commands_dbts_profile_and_java_are_found(folder: Path) -> None:
    done = make_shell(
        folder,
        "/bin/bash",
        """
        tidemark --version
        "$JAVA_HOME/bin/java" -version 2>&1 | head -n 1
        dbt --quiet ls --resource-type model --select releases
        """,
    )
    version, java, model = done.stdout.splitlines()
    assert version.startswith("tidemark, version ")
    assert "version" in java
    assert model == "tidemark.core.releases"
    assert (done.stderr, done.returncode) == ("", 0)


def test_make_shell_runs_the_users_shell_and_returns_its_failure(folder: Path) -> None:
    done = make_shell(folder, "/bin/sh", 'echo "$0 $MAKELEVEL"; command -v tidemark; exit 3')
    assert done.stdout.splitlines() == ["/bin/sh ", f"{folder}/.venv/bin/tidemark"]
    assert done.returncode != 0
