"""The profile of the dbt project in a folder, found as dbt finds it, for the jobs that run without dbt.

`profiles.yml` is in `DBT_PROFILES_DIR`, else in the project's folder, else in `~/.dbt`. The
profile has the name that `profile` in `dbt_project.yml` says. Without a project, as on a machine that only runs
`tidemark stream`, the file must have exactly one profile.
"""

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ingest.common.errors import UsageError
from ingest.config.yaml_file import syntax_error

# Spark's settings that the results of jobs and models depend on.
REQUIRED_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    # Else a name or a key such as `${env:HOME}` would come out of a statement as what that stands for here.
    "spark.sql.variable.substitute": "false",
}
ADAPTER_TYPE = "tidemark"
PROJECT_FILE, PROFILES_FILE = "dbt_project.yml", "profiles.yml"


@dataclass(frozen=True)
class Profile:
    """A profile of a file: its name and its content, with dbt's Jinja not rendered."""

    path: Path
    name: str
    content: dict[str, Any]


def find_profiles_folder(folder: Path | str = ".") -> Path:
    """The folder of `profiles.yml` for the project in `folder`; it may have no such file."""
    if configured_folder := os.environ.get("DBT_PROFILES_DIR"):
        return Path(configured_folder)
    return Path(folder) if (Path(folder) / PROFILES_FILE).is_file() else Path.home() / ".dbt"


def read_profile(folder: Path | str = ".") -> Profile:
    """The profile of the project in `folder`. Raises UsageError."""
    path = find_profiles_folder(folder) / PROFILES_FILE
    try:
        content = yaml.safe_load(path.read_text())
    except FileNotFoundError:
        raise UsageError("no profile", str(path), "Start Tidemark in the project's folder") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            "can't read the profile", f"{path} ({type(error).__name__})", "profiles.yml must be UTF-8 text"
        ) from None
    except yaml.YAMLError as error:
        raise syntax_error(path, error) from None
    name = read_profile_name(folder)
    if name is None:
        names = [key for key in content if key != "config"] if isinstance(content, dict) else []
        if len(names) != 1:
            raise UsageError(
                f"it has {len(names)} profiles, and there is no {PROJECT_FILE} that names one",
                str(path),
                "Start Tidemark in the project's folder",
            )
        name = names[0]
    return Profile(path, name, get_mapping(content, name, path))


def read_profile_name(folder: Path | str = ".") -> str | None:
    """The name of the project's profile; None without a project, or if dbt can't read its settings."""
    content = None
    with suppress(OSError, UnicodeDecodeError, yaml.YAMLError):
        content = yaml.safe_load((Path(folder) / PROJECT_FILE).read_text())
    name = content.get("profile") if isinstance(content, dict) else None
    return name if isinstance(name, str) else None


def get_mapping(parent: Any, name: str, path: Path) -> dict[str, Any]:
    """The mapping `name` of a profile. Raises UsageError if there is none."""
    mapping = parent.get(name) if isinstance(parent, dict) else None
    if not isinstance(mapping, dict):
        raise UsageError(
            f"no mapping {name!r} in the dbt profile", str(path), "docs/reference/catalogs.md describes it"
        )
    return mapping
