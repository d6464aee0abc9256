"""The text of a staging view's dbt model: the SQL that selects a table's live rows from `row_state`. Pure."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ingest.codegen.view_names import FieldPath, escape_jinja, quote_identifier
from ingest.lake.sql_literals import literal

LINE = 120  # sqlfluff's max_line_length
# From this many columns on, a view reads them by position: a look-up by name scans the keys of the row's map.
WIDE = 50


@dataclass(frozen=True)
class ColumnReader:
    """How a view reads the texts of its table's columns. columns: their names in the source, in the table's order."""

    columns: Sequence[str]

    @property
    def is_by_position(self) -> bool:
        """Whether the table is so wide that values are read by position."""
        return len(self.columns) >= WIDE

    def text(self, column: str) -> str:
        """A column's text, as SQL in the view's model."""
        name = literal(column)
        return f"{{{{ texts[{name}] }}}}" if self.is_by_position else escape_jinja(f"columns[{name}]")

    def argument(self, path: FieldPath) -> str:
        """The text of a column, or of a document's field by its path, as the argument of a macro."""
        if not self.is_by_position:
            return f"tidemark.field({', '.join(map(literal, path))})"
        text = f"texts[{literal(path[0])}]"
        nested = ", ".join([text, *map(literal, path[1:])])
        return f"tidemark.nested_field({nested})" if path[1:] else text


@dataclass(frozen=True)
class ViewQuery:
    """The parts of a view's SQL. source, table: as in sources.yml. reader: of its columns. names: the view's own names
    of them. selected: the items of its select list. generator: a `lateral view` clause; empty for none.
    """

    source: str
    table: str
    reader: ColumnReader
    names: Iterable[str]
    selected: Sequence[str]
    generator: str = ""


def model_sql(model: str, query: ViewQuery) -> str:
    """The text of the view's model."""
    filters = f"source = {literal(query.source)} and table_name = {literal(query.table)}"
    reader, rows = query.reader, "ref('tidemark', 'row_state')"
    if reader.is_by_position:
        rows = f"tidemark.with_ordered_texts({rows}, names)"
    body = [
        *(_set_names(reader.columns) if reader.is_by_position else []),
        "select",
        ",\n".join(f"    {item}" for item in query.selected),
        f"from {{{{ {rows} }}}}",
        *([f"    {query.generator}"] if query.generator else []),
        f"where {escape_jinja(filters)} and not deleted",
    ]
    return "\n".join([*_header(model, query, body), *body, ""])


def source_table_name(source: str, model: str) -> str:
    """The name of a view's table in its dbt source: the view's name without the source's name."""
    return model.removeprefix(f"stg_{source}__")


def _set_names(columns: Iterable[str]) -> list[str]:
    """The lines that name the columns which the view reads by position."""
    names = "".join(f"    {literal(column)},\n" for column in columns)
    return [f"{{%- set names = [\n{names}] %}}", "{%- set texts = tidemark.texts_by_position(names) %}"]


def _header(model: str, query: ViewQuery, body: Iterable[str]) -> list[str]:
    """The lines above the SQL: the view's table, its dbt source, and the rules that sqlfluff ignores."""
    # dbt parses a plain literal without Jinja and keeps backslashes as they are.
    name = literal(query.table)
    name += " ~ ''" if "\\" in name else ""
    source, table = literal(query.source), literal(source_table_name(query.source, model))
    meta = f"meta={{'source': {source}, 'table': {name}}}"
    config = f"{{{{ config(materialized='view', {meta}) }}}}"
    return [
        config if len(config) <= LINE else f"{{{{ config(\n    materialized='view',\n    {meta},\n) }}}}",
        *_list_sqlfluff_exceptions(query.names, body),
        "",
        f"-- depends_on: {{{{ source({source}, {table}) }}}}",
    ]


def _list_sqlfluff_exceptions(names: Iterable[str], body: Iterable[str]) -> list[str]:
    """The comment that lets sqlfluff accept the source's names."""
    names, lines = list(names), "\n".join(body).split("\n")
    is_rule_needed = {
        "CV10": any("\\'" in line for line in lines),
        "LT05": any(len(line) > LINE for line in lines),
        "RF05": any(not re.fullmatch(r"\w+", name) for name in names),
        "RF06": any(quote_identifier(name) != name for name in names),
    }
    rules = ",".join(rule for rule, is_needed in is_rule_needed.items() if is_needed)
    return [f"-- noqa: disable={rules}"] if rules else []
