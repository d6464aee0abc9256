"""The dbt package `tidemark`: where its files are, how a project gets it, and whether their versions agree.

A wheel has the files in `ingest/shipped`, a checkout in its root; this module treats both alike.
"""

import shutil
from contextlib import suppress
from importlib import metadata
from pathlib import Path

import yaml

from ingest.common.errors import UsageError
from ingest.config.dbt_profile import PROJECT_FILE

_SHIPPED = Path(__file__).parents[1] / "shipped"
# The folder with the package, examples/ and profiles/.
ROOT = _SHIPPED if _SHIPPED.is_dir() else Path(__file__).parents[2]
NAME = "tidemark"
# Its materializations that keep rows and an op log.
DEFINITIONS = ("bucket", "bucket_lookup")
# The tag of the data tests of keys, which `tidemark codegen` writes: runs leave them out.
KEY_TAG = "tidemark_key"
_PARTS = (PROJECT_FILE, "macros", "models", "tests/data_tests")
# Where a project has its copy of the package, as packages.yml names it; and where dbt looks for it.
COPY, INSTALLED = Path("packages") / NAME, Path("dbt_packages") / NAME


def install_package(project: Path) -> Path:
    """Copies the package into a project, in place of another version, and makes it known to dbt as `dbt deps` does.

    Returns the copy. Raises UsageError if something else is in its place.
    """
    package_copy = project / COPY
    if package_copy.exists() and _read_version(package_copy) is None:
        raise UsageError("it is not the dbt package of Tidemark", str(package_copy), "Move it away")
    shutil.rmtree(package_copy, ignore_errors=True)
    for part in _PARTS:
        source, target = ROOT / part, package_copy / part
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns(".*"))
        else:
            shutil.copy(source, target)
    link_package(project, package_copy)
    return package_copy


def link_package(project: Path, package: Path) -> None:
    """Makes the package in a folder known to dbt in a project, as `dbt deps` does for `local:`."""
    link = project / INSTALLED
    link.parent.mkdir(parents=True, exist_ok=True)
    if link.is_symlink():
        link.unlink()
    elif link.exists():
        shutil.rmtree(link)
    link.symlink_to(package.resolve())


def find_package(project: Path) -> Path:
    """The package that a project has installed; without one, that of this command."""
    installed_package = project / INSTALLED
    return installed_package if installed_package.is_dir() else ROOT


def check_version(project: Path) -> None:
    """Raises UsageError if the package that a project has installed is of another version than this command."""
    installed_version, own_version = _read_version(project / INSTALLED), metadata.version(NAME)
    if installed_version is not None and installed_version != own_version:
        raise UsageError(
            f"the dbt package {NAME} is version {installed_version}, this command is version {own_version}",
            str(INSTALLED),
            f"Install Tidemark {installed_version}, or replace the package: tidemark init --package-only .",
        )


def _read_version(package: Path) -> str | None:
    """The version of the package in a folder; None if it is not there, or another package."""
    content = None
    with suppress(OSError, UnicodeDecodeError, yaml.YAMLError):
        content = yaml.safe_load((package / PROJECT_FILE).read_text())
    if not isinstance(content, dict) or content.get("name") != NAME:
        return None
    return str(content.get("version"))
