"""Writes the staging views of a Postgres source: for each table a dbt model and its yml.

`staging_models` is pure: the same catalogue gives the same text. `write` never touches a file that
differs from what it would write, as a person may have edited it, unless it is told to.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ingest.config import PostgresSource
from ingest.lake.sql import literal
from ingest.lake.tables import Column
from ingest.postgres import catalog
from ingest.postgres.catalog import CatalogTable
from ingest.postgres.connection import Connection, connect
from ingest.postgres.types import Cast, cast
from ingest.postgres.viewnames import column_names, jinja_safe, model_names, quoted
from ingest.settings import JobSettings

FOLDER = Path("models/staging")
_LINE = 120  # sqlfluff's max_line_length

_DOMAINS = """
SELECT format_type(oid, NULL), format_type(typbasetype, typtypmod) FROM pg_type WHERE typtype = 'd'
"""


@dataclass(frozen=True)
class Written:
    """What `write` did: files written, those that were so already, those that differ."""

    written: tuple[Path, ...]
    unchanged: tuple[Path, ...]
    kept: tuple[Path, ...]


@dataclass(frozen=True)
class _View:
    """A table as a view. names, casts: of its columns by their names in the source."""

    source: str
    model: str
    table: CatalogTable
    names: Mapping[str, str]
    casts: Mapping[str, Cast]

    @property
    def keeps_text(self) -> bool:
        return any(each.not_held for each in self.casts.values())


def write_models(
    source: PostgresSource, settings: JobSettings, folder: Path = FOLDER, *, force: bool = False
) -> list[str]:
    """Writes the views of all tables of `source` that can be replicated; says so in a few lines.

    Raises CannotConnect.
    """
    dsn = source.dsn.get_secret_value()
    with connect(dsn, connect_seconds=settings.connect_seconds) as connection:
        found = catalog.tables(connection, source.selects)
        usable = [table for table in found if not table.problem]
        done = write(staging_models(source, usable, domains(connection)), folder, force=force)
    return [
        *(f"wrote {path}" for path in done.written),
        *(f"left {path}, which differs; --force writes over it" for path in done.kept),
        *(f"left out {table.table_name}: {table.problem}" for table in found if table.problem),
        f"{source.name}: {len(usable)} tables, {len(done.unchanged)} files as they were",
    ]


def domains(connection: Connection) -> dict[str, str]:
    """The type below each domain, both as format_type writes them."""
    return dict(connection.execute(_DOMAINS).fetchall())


def staging_models(
    source: PostgresSource, tables: Sequence[CatalogTable], domains: Mapping[str, str]
) -> dict[str, str]:
    """The text of each file by its name, such as `stg_shop__orders.sql`.

    domains: as `domains` gives them.
    """
    files = {}
    for model, table in model_names(source.name, tables).items():
        names = column_names([column.name for column in table.columns])
        casts = {c.name: cast(c.name, c.type, domains) for c in table.columns}
        view = _View(source.name, model, table, names, casts)
        files[f"{model}.sql"] = _sql(view)
        files[f"{model}.yml"] = _yml(view)
    return files


def write(files: Mapping[str, str], folder: Path = FOLDER, *, force: bool = False) -> Written:
    """Writes `files`, of `staging_models`, into `folder`. force: also over files that differ."""
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


def _sql(view: _View) -> str:
    name, keyless = literal(view.table.table_name), view.table.key_columns is None
    row_key = "if(copy = 1, row_key, row_key || '#' || copy)" if keyless else "row_key"
    selected = [f"{row_key} as _row_key", "checkpoint_id as _checkpoint_id"]
    if view.keeps_text:
        selected.append("columns as _columns")
    selected += [f"{view.casts[column].sql} as {quoted(to)}" for column, to in view.names.items()]
    of_table = f"source = {literal(view.source)} and table_name = {name}"
    body = [
        "select",
        ",\n".join(f"    {jinja_safe(item)}" for item in selected),
        "from {{ ref('row_state') }}",
        *(["    lateral view explode(sequence(1, copies)) as copy"] if keyless else []),
        f"where {jinja_safe(of_table)} and not deleted",
    ]
    # A literal dbt reads without Jinja, and then as it stands, backslashes included.
    name += " ~ ''" if "\\" in name else ""
    head = f"{{{{ config(meta={{'source': {literal(view.source)}, 'table': {name}}}) }}}}"
    return "\n".join([head, *_pardons(view.names.values(), body), "", *body, ""])


def _pardons(names: Iterable[str], body: Iterable[str]) -> list[str]:
    """The comment that lets sqlfluff pass names as the source writes them."""
    names, lines = list(names), "\n".join(body).split("\n")
    needed = {
        "CV10": any("\\'" in line for line in lines),
        "LT05": any(len(line) > _LINE for line in lines),
        "RF05": any(not re.fullmatch(r"\w+", name) for name in names),
        "RF06": any(quoted(name) != name for name in names),
    }
    rules = ",".join(rule for rule, is_needed in needed.items() if is_needed)
    return [f"-- noqa: disable={rules}"] if rules else []


_CHECKPOINT = "The checkpoint of the run that last changed the row."
_TEXTS = "Each column's text as Postgres prints it, by name; also what Spark's types can't hold."


def _yml(view: _View) -> str:
    key = "JSON of the key's values."
    if view.table.key_columns is None:
        key = "JSON of all values, as there is no key, and `#` and a number for each further copy."
    columns = {"_row_key": key, "_checkpoint_id": _CHECKPOINT}
    if view.keeps_text:
        columns["_columns"] = _TEXTS
    for column in view.table.columns:
        columns[jinja_safe(view.names[column.name])] = jinja_safe(_description(view, column))
    about = (
        f"The rows of `{view.table.table_name}` of source `{view.source}`, typed. "
        "Written by `tidemark codegen`, yours to edit."
    )
    model = {
        "name": view.model,
        "description": jinja_safe(about),
        "columns": [{"name": name, "description": text} for name, text in columns.items()],
    }
    content = yaml.dump(
        {"version": 2, "models": [model]},
        Dumper=_Indented,
        sort_keys=False,
        allow_unicode=True,
        width=_LINE,
    )
    return content.replace("\nmodels:", "\n\nmodels:", 1)


def _description(view: _View, column: Column) -> str:
    text = column.type
    if view.names[column.name] != column.name:
        text += f"; column {json.dumps(column.name, ensure_ascii=False)} of the source"
    if not_held := view.casts[column.name].not_held:
        text += f"; NULL for {not_held}, whose text is in _columns"
    return text


class _Indented(yaml.SafeDumper):
    """Lists are indented, as in the project's other files."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> Any:  # noqa: ARG002
        return super().increase_indent(flow, indentless=False)
