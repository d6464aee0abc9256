"""Writes a new dbt project that replicates one source; asks nothing, and overwrites nothing."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from string import Template

from ingest.common.errors import UsageError
from ingest.config.dbt_profile import PROFILES_FILE, PROJECT_FILE
from ingest.config.sources_file import SOURCE_NAME, SYSTEM_DATABASES
from ingest.project.dbt_package import COPY, ROOT, install_package

KINDS = ("postgres", "mongodb")
_TEMPLATE = Path(__file__).parent / "template"
# By file of the project: its template.
_TEMPLATES = {
    PROJECT_FILE: PROJECT_FILE,
    "packages.yml": "packages.yml",
    "sources.yml": "sources_{kind}.yml",
    "macros/generate_schema_name.sql": "macros/generate_schema_name.sql",
    ".gitignore": "gitignore",
    "README.md": "README.md",
}
# Names of dbt's own packages and of ours, and of schemas that only Tidemark writes.
_RESERVED_NAMES = {"dbt", "dbt_spark", "tidemark", "core", "raw"}
# Folders for the user's files.
_FOLDERS = ("models/staging", "models/buckets")


class _FileTemplate(Template):
    """Replaces `@name`: `$` and braces belong to sources.yml and to dbt."""

    delimiter = "@"


@dataclass(frozen=True)
class NewProject:
    """A project to write. kind: the kind of its source. dsn_env: the environment variable with the source's address."""

    folder: Path
    kind: str
    dsn_env: str = ""

    @property
    def name(self) -> str:
        """The name of the project, its profile and its source: that of the folder, as dbt allows it."""
        name = re.sub(r"[^a-z0-9_]+", "_", self.folder.resolve().name.lower()).strip("_")
        reserved_names = _RESERVED_NAMES | (set(SYSTEM_DATABASES) if self.kind == "mongodb" else set())
        if not re.fullmatch(SOURCE_NAME, name) or name in reserved_names:
            raise UsageError(f"a project can't have the name {name!r}", str(self.folder), "Choose another folder")
        return name

    @property
    def dsn_variable(self) -> str:
        """The environment variable with the source's address."""
        return self.dsn_env or f"{self.name.upper()}_{'DSN' if self.kind == 'postgres' else 'URI'}"

    def write(self) -> Iterator[str]:
        """Writes the project; yields the path of each file. Raises UsageError if one of them exists."""
        texts = dict(self.render())
        existing_files = [name for name in (*texts, str(COPY)) if (self.folder / name).exists()]
        if PROJECT_FILE in existing_files:
            fix = f"Add the dbt package to it: tidemark init --package-only {self.folder}"
            raise UsageError("there is already a dbt project", str(self.folder), fix)
        if existing_files:
            raise UsageError(f"it already has {', '.join(existing_files)}", str(self.folder), "Choose another folder")
        for folder in _FOLDERS:
            (self.folder / folder).mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            yield str(path)
        yield str(install_package(self.folder))

    def render(self) -> Iterator[tuple[str, str]]:
        """The text of each file, without the dbt package."""
        values = {"name": self.name, "source": self.name, "dsn_env": self.dsn_variable}
        for name, template in _TEMPLATES.items():
            text = (_TEMPLATE / template.format(kind=self.kind)).read_text()
            yield name, _FileTemplate(text).substitute(values)
        profiles = (ROOT / "profiles" / PROFILES_FILE).read_text()
        profile_text = re.sub(r"^tidemark:", f"{self.name}:", profiles, flags=re.MULTILINE)
        yield PROFILES_FILE, re.sub(r"^( +schema:) core$", rf"\1 {self.name}", profile_text, flags=re.MULTILINE)


def add_package(folder: Path) -> Iterator[str]:
    """Writes the dbt package into an existing dbt project; yields what it did, and what is left to do."""
    if not (folder / PROJECT_FILE).is_file():
        raise UsageError("there is no dbt project", str(folder), "Name the folder of its dbt_project.yml")
    yield f"wrote {install_package(folder)}"
    packages_file = folder / "packages.yml"
    if not (packages_file.is_file() and str(COPY) in packages_file.read_text(errors="replace")):
        yield f"Add it to {packages_file}, and run `dbt deps`:"
        yield "packages:"
        yield f"  - local: {COPY}"
        yield "The next steps are in docs/guides/existing-project.md."
