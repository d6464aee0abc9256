"""Processes as users and schedulers start them, with a `sources.yml` of the test."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import yaml

from ingest.config.sources_file import PostgresSource
from tests.harness.project_copy import ROOT

TIDEMARK = (sys.executable, "-c", "from ingest.cli.main import main; main()")


def write_sources(folder: Path, source: PostgresSource, settings: Mapping[str, object] | None = None) -> Path:
    """Writes a sources.yml with this one source into `folder`; returns its path."""
    postgres = {**source.model_dump(mode="json", exclude={"name"}), "dsn": source.dsn.get_secret_value()}
    file = folder / "sources.yml"
    file.write_text(
        yaml.safe_dump({"sources": {source.name: {"postgres": postgres}}, "settings": dict(settings or {})})
    )
    return file


def run_command(folder: Path, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a command in `folder` until it ends; returns its exit code and output."""
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
