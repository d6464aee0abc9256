"""A copy of this dbt project, for a test's own views and definitions."""

import os
import shutil
from pathlib import Path

ROOT = Path(__file__).parents[2]
_PARTS = ("dbt_project.yml", "macros", "profiles", "models/core", "models/raw", "tests/data_tests")

# dbt leaves its log file to the garbage collector.
os.environ.setdefault("DBT_LOG_LEVEL_FILE", "none")


def copy_project(folder: Path) -> None:
    """A copy of this project in `folder`, without views and definitions."""
    for part in _PARTS:
        copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
        (folder / part).parent.mkdir(parents=True, exist_ok=True)
        copy(ROOT / part, folder / part)
