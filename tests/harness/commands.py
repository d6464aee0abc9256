"""Processes as people and schedulers start them, with a `sources.yml` of a test's own."""

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
    """A sources.yml in `folder` with this source alone; gives its path."""
    postgres = {**source.model_dump(mode="json", exclude={"name"}), "dsn": source.dsn.get_secret_value()}
    file = folder / "sources.yml"
    file.write_text(
        yaml.safe_dump({"sources": {source.name: {"postgres": postgres}}, "settings": dict(settings or {})})
    )
    return file


def finished(folder: Path, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A process in `folder`, when it has ended, with what it said."""
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
