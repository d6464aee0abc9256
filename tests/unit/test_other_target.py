"""A project whose profile has a target of another adapter."""

from pathlib import Path

import pytest
import yaml

from ingest.commands.check import check_project
from ingest.common.errors import UsageError
from ingest.config.job_settings import JobSettings
from ingest.config.sources_file import Settings
from ingest.project.dbt_project import Project
from tests.harness.project_copy import make_project


def test_a_target_of_another_adapter_is_refused(tmp_path: Path) -> None:
    make_project(tmp_path)
    output = {"type": "spark", "method": "session", "host": "localhost", "schema": "core"}
    profile = {"tidemark": {"target": "dev", "outputs": {"dev": output}}}
    (tmp_path / "profiles.yml").write_text(yaml.safe_dump(profile))
    with pytest.raises(UsageError, match=r"the target is of type 'spark': profiles.yml\. Set type: tidemark"):
        Project(folder=tmp_path)
    (finding,) = check_project(Settings(sources={}, settings=JobSettings()), folder=tmp_path).findings
    assert str(finding) == f"the target is of type 'spark': {tmp_path}/profiles.yml. Set type: tidemark."
