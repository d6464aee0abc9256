"""The existing staging views: which name belongs to which table and column.

Read from the project's files, which are under version control: `meta` of a view, in its SQL or its yml, has source
and table. A file that can't be parsed is not an error: it may be the user's.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, TemplateError, nodes

from ingest.codegen.view_names import JINJA_BRACE, FieldPath

_JINJA = Environment(autoescape=False, extensions=["jinja2.ext.do"])  # for SQL, and only parsed
_STRING = r"'(?:[^'\\]|\\.)*'"
# Where a view reads a column or field, and its alias: the last one in a line, so not the type of a cast.
_ITEMS = re.compile(
    rf"columns\[(?P<column>{_STRING})\]"
    rf"|\bfield\((?P<path>{_STRING}(?:,\s*{_STRING})*)\)"
    rf"|{_STRING}"
    r"|\bas\s+(?P<name>`(?:[^`]|``)*`|[a-z_]\w*)(?=,|\s*\n\s*from\b)",
    re.IGNORECASE | re.DOTALL,
)


@dataclass(frozen=True)
class Record:
    """The views in a folder. paths: of their files. tables: source and table of each view that has them in `meta`."""

    paths: Mapping[str, Path] = field(default_factory=dict)
    tables: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    def columns(self, model: str) -> dict[str, FieldPath]:
        """By name in a view: the column, or the path of the field. Empty if there is no such view."""
        return parse_columns(self.paths[model].read_text(errors="replace")) if model in self.paths else {}


def read_record(folder: Path) -> Record:
    """The record of a folder and its subfolders."""
    paths = {path.stem: path for path in sorted(folder.rglob("*.sql")) if path.is_file()}
    given = {model: _sql_meta(path) for model, path in paths.items()}
    if not all(
        "table" in meta for meta in given.values()
    ):  # written by the user: generated views need no yml, which is slow to read
        described = dict(_yml_meta(folder))
        given = {model: {**described.get(model, {}), **meta} for model, meta in given.items()}
    tables = {
        model: (meta["source"], meta["table"]) for model, meta in given.items() if {"source", "table"} <= set(meta)
    }
    return Record(paths, tables)


def _sql_meta(path: Path) -> dict[str, str]:
    """`meta` in the `config(...)` of a model."""
    with suppress(OSError, UnicodeDecodeError, TemplateError, nodes.Impossible):
        for call in _JINJA.parse(path.read_text()).find_all(nodes.Call):
            if isinstance(call.node, nodes.Name) and call.node.name == "config":
                given = {each.key: each.value for each in call.kwargs}
                if "meta" in given:
                    return _text_values(given["meta"].as_const())
    return {}


def _yml_meta(folder: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """`meta` of models in yml files, by name."""
    for path in [*folder.rglob("*.yml"), *folder.rglob("*.yaml")]:
        content = None
        with suppress(OSError, UnicodeDecodeError, yaml.YAMLError):
            content = yaml.safe_load(path.read_text())
        models = content.get("models") if isinstance(content, dict) else None
        for model in models if isinstance(models, list) else ():
            if isinstance(model, dict):
                config = model.get("config")
                configured = config.get("meta") if isinstance(config, dict) else None
                yield str(model.get("name")), {**_text_values(model.get("meta")), **_text_values(configured)}


def _text_values(meta: Any) -> dict[str, str]:
    """The text values of `meta`, which should be a mapping."""
    values = meta if isinstance(meta, dict) else {}
    return {key: value for key, value in values.items() if isinstance(key, str) and isinstance(value, str)}


def parse_columns(text: str) -> dict[str, FieldPath]:
    """By name of a view's column: the column or field of `row_state`, for those that show exactly one."""
    paths: dict[str, FieldPath] = {}
    seen: set[FieldPath] = set()
    for item in _ITEMS.finditer(text.replace(JINJA_BRACE, "{")):
        if read := item["column"] or item["path"]:
            strings = re.findall(_STRING, read, re.DOTALL)
            seen.add(tuple(re.sub(r"\\(.)", r"\1", each[1:-1], flags=re.DOTALL) for each in strings))
        elif name := item["name"]:
            if len(seen) == 1:
                paths.setdefault(name[1:-1].replace("``", "`") if name[0] == "`" else name, *seen)
            seen.clear()
    return paths
