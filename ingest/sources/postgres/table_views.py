"""The staging views of a Postgres source: for each table a dbt model and its yml.

`staging_models` is pure: the same catalog gives the same text.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ingest.codegen.staging_files import CHECKPOINT, SourceViews, View, file_header, model_yml
from ingest.codegen.staging_record import Record
from ingest.codegen.view_names import column_names, escape_jinja, model_names, quote_identifier
from ingest.config.job_settings import JobSettings
from ingest.config.sources_file import PostgresSource
from ingest.lake.source_tables import Column
from ingest.lake.sql_literals import literal
from ingest.sources.postgres.catalog import catalog_tables
from ingest.sources.postgres.catalog.catalog_tables import CatalogTable
from ingest.sources.postgres.postgres_connection import Connection, connect
from ingest.sources.postgres.postgres_types import Cast, cast

_DOMAINS = """
SELECT format_type(oid, NULL), format_type(typbasetype, typtypmod) FROM pg_type WHERE typtype = 'd'
"""


@dataclass(frozen=True)
class _View:
    """A table and its view. names, casts: the view's column names and casts, by column name in the source."""

    source: str
    model: str
    table: CatalogTable
    names: Mapping[str, str]
    casts: Mapping[str, Cast]

    @property
    def keeps_text(self) -> bool:
        return any(column_cast.not_held for column_cast in self.casts.values())


def views(source: PostgresSource, settings: JobSettings, record: Record) -> SourceViews:
    """The views of all tables of `source` that can be replicated. record: of the existing views.

    Raises CannotConnect.
    """
    dsn = source.dsn.get_secret_value()
    with connect(dsn, connect_timeout_seconds=settings.connect_timeout_seconds) as connection:
        tables = catalog_tables.read_tables(connection, source.selects)
        models = staging_models(source, [table for table in tables if not table.problem], domains(connection), record)
    return SourceViews(models, {table.table_name: table.problem for table in tables if table.problem}, "tables")


def domains(connection: Connection) -> dict[str, str]:
    """The base type of each domain, both as format_type writes them."""
    return dict(connection.execute(_DOMAINS).fetchall())


def staging_models(
    source: PostgresSource, tables: Sequence[CatalogTable], domains: Mapping[str, str], record: Record
) -> list[View]:
    """The view of each table. domains: of `domains`. record: of the existing views."""
    by_name = {table.table_name: table for table in tables}
    shorts = {name: (_short(table),) for name, table in by_name.items()}
    models = []
    for model, name in model_names(source.name, shorts, record.names).items():
        table = by_name[name]
        view_columns = column_names([(column.name,) for column in table.columns], record.columns(model))
        casts = {c.name: cast(c.name, c.type, domains) for c in table.columns}
        view = _View(
            source.name, model, table, {column: name_in_view for (column,), name_in_view in view_columns.items()}, casts
        )
        models.append(View(model, name, _sql(view), _yml(view)))
    return models


def _short(table: CatalogTable) -> str:
    return table.name if table.schema == "public" else f"{table.schema}__{table.name}"


def _sql(view: _View) -> str:
    name, keyless = literal(view.table.table_name), view.table.key_columns is None
    row_key = "if(copy = 1, row_key, row_key || '#' || copy)" if keyless else "row_key"
    selected = [f"{row_key} as _row_key", "checkpoint_id as _checkpoint_id"]
    if view.keeps_text:
        selected.append("columns as _columns")
    selected += [
        f"{view.casts[column].sql} as {escape_jinja(quote_identifier(to))}" for column, to in view.names.items()
    ]
    of_table = f"source = {literal(view.source)} and table_name = {name}"
    body = [
        "select",
        ",\n".join(f"    {item}" for item in selected),
        "from {{ ref('row_state') }}",
        *(["    lateral view explode(sequence(1, multiplicity)) as copy"] if keyless else []),
        f"where {escape_jinja(of_table)} and not deleted",
    ]
    return "\n".join([*file_header(view.source, view.table.table_name, view.names.values(), body), "", *body, ""])


_TEXTS = "Each column's text as Postgres prints it, by name; also what Spark's types can't hold."


def _yml(view: _View) -> str:
    key = "JSON of the key's values."
    if view.table.key_columns is None:
        key = "JSON of all values, as there is no key, and `#` and a number for each further copy."
    columns = {"_row_key": key, "_checkpoint_id": CHECKPOINT}
    if view.keeps_text:
        columns["_columns"] = _TEXTS
    for column in view.table.columns:
        columns[escape_jinja(view.names[column.name])] = escape_jinja(_description(view, column))
    about = (
        f"The rows of `{view.table.table_name}` of source `{view.source}`, typed. "
        "Written by `tidemark codegen`, yours to edit."
    )
    return model_yml(view.model, about, columns)


def _description(view: _View, column: Column) -> str:
    text = column.type
    if view.names[column.name] != column.name:
        text += f"; column {json.dumps(column.name, ensure_ascii=False)} of the source"
    if not_held := view.casts[column.name].not_held:
        text += f"; NULL for {not_held}, whose text is in _columns"
    return text
