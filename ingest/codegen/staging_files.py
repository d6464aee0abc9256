"""The staging views that `tidemark codegen` writes, as files: a dbt model and its yml for each table.

A file that differs from the generated text may have been edited, and is only overwritten with --force. A view that
Spark rejects is not written.
"""

import difflib
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from ingest.codegen.staging_record import Record
from ingest.codegen.view_names import escape_jinja
from ingest.codegen.view_sql import LINE, source_table_name
from ingest.config.sources_file import matching_pattern
from ingest.lake.sql_literals import literal
from ingest.project.dbt_package import KEY_TAG

FOLDER = Path("models/staging")
CHECKPOINT = "The checkpoint of the run that last changed the row."


@dataclass(frozen=True)
class View:
    """A table's view: the names of model and table, and the text of both files."""

    model: str
    table: str
    sql: str
    yml: str


@dataclass(frozen=True)
class SourceViews:
    """The views of a source's tables, why other tables have none, by name, and the source's word for tables."""

    views: Sequence[View]
    problems: Mapping[str, str]
    noun: str


@dataclass
class WriteResult:
    """Lines to print, the number of unchanged files, and the tables whose view Spark rejects."""

    lines: list[str] = field(default_factory=list)
    unchanged: int = 0
    refused: list[str] = field(default_factory=list)


def write_views(
    views: Iterable[View], record: Record, try_view: Callable[[str], str], folder: Path = FOLDER, *, force: bool = False
) -> WriteResult:
    """Writes the missing files of views. force: also overwrites files that differ.

    record: the record of the folder. try_view: returns why Spark rejects a view's text; empty if it accepts it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    result = WriteResult()
    for view in views:
        changed_files = []
        for path, current_text, text in _compare_files(view, record, folder):
            if current_text == text:
                result.unchanged += 1
            elif current_text is None or force:
                changed_files.append((path, text))
            else:
                result.lines.append(f"kept {path}, which differs; `{_make_force_command(view, record)}` overwrites it")
        if view.sql in (text for _, text in changed_files) and (rejection := try_view(view.sql)):
            result.refused.append(view.table)
            result.lines.append(f"skipped {view.table}: Spark rejects its view ({rejection})")
            continue
        for path, text in changed_files:
            path.write_bytes(text.encode())
            result.lines.append(f"wrote {path}")
    return result


def _make_force_command(view: View, record: Record) -> str:
    """The command that overwrites the files of this view only."""
    source, _ = record.tables.get(view.model, ("", ""))
    is_shared = len({name for name, table in record.tables.values() if table == view.table}) > 1
    source_option = f" --source {source}" if is_shared and source else ""
    return f"tidemark codegen{source_option} --force {shlex.quote(matching_pattern(view.table))}"


def diff_views(views: Iterable[View], record: Record, folder: Path = FOLDER) -> Iterator[str]:
    """What `write_views` with `force` would change, as lines of a unified diff."""
    for view in views:
        for path, current_text, text in _compare_files(view, record, folder):
            if current_text != text:
                name = str(path) if current_text is not None else "/dev/null"
                old_lines, new_lines = (content.splitlines(keepends=True) for content in (current_text or "", text))
                yield from (line.rstrip("\n") for line in difflib.unified_diff(old_lines, new_lines, name, str(path)))


def _compare_files(view: View, record: Record, folder: Path) -> Iterator[tuple[Path, str | None, str]]:
    """Path, current text (None: no file) and generated text of each file of a view."""
    sql_path = record.paths.get(view.model, folder / f"{view.model}.sql")
    for path, text in ((sql_path, view.sql), (sql_path.with_suffix(".yml"), view.yml)):
        current_text = path.read_bytes().decode(errors="replace") if path.exists() else None
        yield path, current_text, text


@dataclass(frozen=True)
class Description:
    """What the yml of a view says about a table. source, table_name: as in sources.yml. about: a sentence about the
    view. comment: the table's comment in the source. columns: the view's columns with their descriptions. own_columns:
    the columns that the source has too. key: the column that identifies a row.
    """

    source: str
    table_name: str
    about: str
    columns: Mapping[str, str]
    own_columns: Sequence[str]
    key: str | None = "_row_key"
    comment: str = ""


def model_yml(model: str, table: Description) -> str:
    """The yml of a view: its table as a dbt source, and the model."""
    columns = [{"name": name, "description": text} for name, text in table.columns.items()]
    source = {
        "name": table.source,
        "description": f"The source `{table.source}` of `sources.yml`.",
        "schema": "raw",
        "tables": [_make_source_yml(model, table)],
    }
    content = {
        "version": 2,
        "sources": [source],
        "models": [
            {
                "name": model,
                "description": escape_jinja(" ".join(filter(None, [table.comment, table.about]))),
                "columns": [
                    {**column, "data_tests": _KEY_TESTS} if column["name"] == table.key else column
                    for column in columns
                ],
            }
        ],
    }
    text = yaml.dump(content, Dumper=_IndentedDumper, sort_keys=False, allow_unicode=True, width=LINE)
    return re.sub(r"\n(sources|models):", r"\n\n\1:", text)


# The run loop does not run these tests: the models keep keys unique, and each test reads all rows.
_KEY_TESTS = [{name: {"config": {"tags": [KEY_TAG]}}} for name in ("unique", "not_null")]
# A running stream stores its position every few seconds, whether or not a table changes.
_FRESHNESS = {"warn_after": {"count": 5, "period": "minute"}, "error_after": {"count": 1, "period": "hour"}}


def _make_source_yml(model: str, table: Description) -> dict[str, Any]:
    """A table as a dbt source: its events are rows of raw.wal_events."""
    description = (
        f"`{table.table_name}` of source `{table.source}`, for lineage and freshness: select from `{model}`. The "
        "relation is the log of all tables."
    )
    loaded_at = f"select max(updated_at) from raw.stream_positions where source = {literal(table.source)}"
    return {
        "name": source_table_name(table.source, model),
        "identifier": "wal_events",
        "description": escape_jinja(" ".join(filter(None, [table.comment, description]))),
        "config": {"loaded_at_query": loaded_at, "freshness": _FRESHNESS},
        "columns": [{"name": name, "description": table.columns[name]} for name in table.own_columns],
    }


class _IndentedDumper(yaml.SafeDumper):
    """Lists are indented, as in the project's other files."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> Any:  # noqa: ARG002
        return super().increase_indent(flow, indentless=False)

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        return True
