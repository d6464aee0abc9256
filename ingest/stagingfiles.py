"""The staging views that `tidemark codegen` writes, as files: a dbt model and its yml for each table.

Pure but for `write`, which never touches a file that differs from what it would write, as a person may have edited it,
unless it is told to.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ingest.lake.sql import literal
from ingest.viewnames import jinja_safe, quoted

FOLDER = Path("models/staging")
LINE = 120  # sqlfluff's max_line_length
CHECKPOINT = "The checkpoint of the run that last changed the row."


@dataclass(frozen=True)
class Written:
    """What `write` did: files written, those that were so already, those that differ."""

    written: tuple[Path, ...]
    unchanged: tuple[Path, ...]
    kept: tuple[Path, ...]

    def report(self, left_out: Mapping[str, str]) -> list[str]:
        """A line for each file that is new or differs, and for each table without one. left_out: why, by its name."""
        return [
            *(f"wrote {path}" for path in self.written),
            *(f"left {path}, which differs; --force writes over it" for path in self.kept),
            *(f"left out {name}: {problem}" for name, problem in left_out.items()),
        ]


def write(files: Mapping[str, str], folder: Path = FOLDER, *, force: bool = False) -> Written:
    """Writes `files` into `folder`. force: also over files that differ."""
    folder.mkdir(parents=True, exist_ok=True)
    written, unchanged, kept = [], [], []
    for name, text in files.items():
        path, content = folder / name, text.encode()
        if path.exists() and path.read_bytes() == content:
            unchanged.append(path)
        elif path.exists() and not force:
            kept.append(path)
        else:
            path.write_bytes(content)
            written.append(path)
    return Written(tuple(written), tuple(unchanged), tuple(kept))


def head(source: str, table_name: str, names: Iterable[str], body: Iterable[str]) -> list[str]:
    """The lines above a view's SQL: which table it shows, and what sqlfluff is to pass. names: of its columns."""
    # A literal dbt reads without Jinja, and then as it stands, backslashes included.
    name = literal(table_name)
    name += " ~ ''" if "\\" in name else ""
    return [f"{{{{ config(meta={{'source': {literal(source)}, 'table': {name}}}) }}}}", *_pardons(names, body)]


def _pardons(names: Iterable[str], body: Iterable[str]) -> list[str]:
    """The comment that lets sqlfluff pass names as the source writes them."""
    names, lines = list(names), "\n".join(body).split("\n")
    needed = {
        "CV10": any("\\'" in line for line in lines),
        "LT05": any(len(line) > LINE for line in lines),
        "RF05": any(not re.fullmatch(r"\w+", name) for name in names),
        "RF06": any(quoted(name) != name for name in names),
    }
    rules = ",".join(rule for rule, is_needed in needed.items() if is_needed)
    return [f"-- noqa: disable={rules}"] if rules else []


def model_yml(model: str, about: str, columns: Mapping[str, str]) -> str:
    """The yml of a view. columns: their descriptions."""
    described = {
        "name": model,
        "description": jinja_safe(about),
        "columns": [{"name": name, "description": text} for name, text in columns.items()],
    }
    content = yaml.dump(
        {"version": 2, "models": [described]},
        Dumper=_Indented,
        sort_keys=False,
        allow_unicode=True,
        width=LINE,
    )
    return content.replace("\nmodels:", "\n\nmodels:", 1)


class _Indented(yaml.SafeDumper):
    """Lists are indented, as in the project's other files."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> Any:  # noqa: ARG002
        return super().increase_indent(flow, indentless=False)
