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
_ITEM = re.compile(
    rf"nested_field\(texts\[(?P<path_by_position>{_STRING}\](?:,\s*{_STRING})*)\)"
    rf"|(?:columns|texts)\[(?P<column>{_STRING})\]"
    rf"|\bfield\((?P<path>{_STRING}(?:,\s*{_STRING})*)\)"
    rf"|{_STRING}"
    r"|\bas\s+(?P<name>`(?:[^`]|``)*`|[a-z_]\w*)(?=,|\s*\n\s*from\b)",
    re.IGNORECASE | re.DOTALL,
)


@dataclass(frozen=True)
class Record:
    """The views in a folder. paths: the views' files. tables: source and table of each view that has them in `meta`."""

    paths: Mapping[str, Path] = field(default_factory=dict)
    tables: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def names(self) -> dict[str, tuple[str, str]]:
        """Source and table of every view; empty texts for the user's own models."""
        return {model: self.tables.get(model, ("", "")) for model in self.paths}

    def columns(self, model: str) -> dict[str, FieldPath]:
        """By name in a view: the source's column, or the path of the field. Empty if there is no such view."""
        return parse_columns(self.paths[model].read_text(errors="replace")) if model in self.paths else {}


def read_record(folder: Path) -> Record:
    """The record of a folder and its subfolders."""
    paths = {path.stem: path for path in sorted(folder.rglob("*.sql")) if path.is_file()}
    metas = {model: _read_sql_meta(path) for model, path in paths.items()}
    # The user's own models may have `meta` in a yml, which is slow to read; generated views need none.
    if not all("table" in meta for meta in metas.values()):
        yml_metas = dict(_read_yml_metas(folder))
        metas = {model: {**yml_metas.get(model, {}), **meta} for model, meta in metas.items()}
    tables = {
        model: (meta["source"], meta["table"]) for model, meta in metas.items() if {"source", "table"} <= set(meta)
    }
    return Record(paths, tables)


def _read_sql_meta(path: Path) -> dict[str, str]:
    """`meta` in the `config(...)` of a model."""
    with suppress(OSError, UnicodeDecodeError, TemplateError, nodes.Impossible):
        for call in _JINJA.parse(path.read_text()).find_all(nodes.Call):
            if isinstance(call.node, nodes.Name) and call.node.name == "config":
                arguments = {argument.key: argument.value for argument in call.kwargs}
                if "meta" in arguments:
                    return _select_text_values(arguments["meta"].as_const())
    return {}


def _read_yml_metas(folder: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """`meta` of models in yml files, by name."""
    for path in [*folder.rglob("*.yml"), *folder.rglob("*.yaml")]:
        content = None
        with suppress(OSError, UnicodeDecodeError, yaml.YAMLError):
            content = yaml.safe_load(path.read_text())
        models = content.get("models") if isinstance(content, dict) else None
        for model in models if isinstance(models, list) else ():
            if isinstance(model, dict):
                config = model.get("config")
                config_meta = config.get("meta") if isinstance(config, dict) else None
                yield (
                    str(model.get("name")),
                    {**_select_text_values(model.get("meta")), **_select_text_values(config_meta)},
                )


def _select_text_values(meta: Any) -> dict[str, str]:
    """The text values of `meta`, which should be a mapping."""
    values = meta if isinstance(meta, dict) else {}
    return {key: value for key, value in values.items() if isinstance(key, str) and isinstance(value, str)}


def parse_columns(text: str) -> dict[str, FieldPath]:
    """By name of a view's column: the column or field of `row_state`, if the view's column reads exactly one."""
    paths: dict[str, FieldPath] = {}
    item_paths: set[FieldPath] = set()
    for item in _ITEM.finditer(text.replace(JINJA_BRACE, "{")):
        if quoted_path := item["column"] or item["path"] or item["path_by_position"]:
            strings = re.findall(_STRING, quoted_path, re.DOTALL)
            item_paths.add(tuple(re.sub(r"\\(.)", r"\1", string[1:-1], flags=re.DOTALL) for string in strings))
        elif name := item["name"]:
            if len(item_paths) == 1:
                paths.setdefault(name[1:-1].replace("``", "`") if name[0] == "`" else name, *item_paths)
            item_paths.clear()
    return paths
