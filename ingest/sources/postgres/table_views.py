"""The staging views of a Postgres source: for each table a dbt model and its yml.

`staging_models` is pure: the same catalog gives the same text.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ingest.codegen.staging_files import CHECKPOINT, Description, SourceViews, View, model_yml
from ingest.codegen.staging_record import Record
from ingest.codegen.view_names import column_names, escape_jinja, model_names, quote_identifier
from ingest.codegen.view_sql import ColumnReader, ViewQuery, model_sql
from ingest.common.errors import one_line
from ingest.config.job_settings import JobSettings
from ingest.config.sources_file import PostgresSource
from ingest.lake.source_tables import Column
from ingest.sources.postgres.catalog import catalog_tables
from ingest.sources.postgres.catalog.catalog_tables import CatalogTable
from ingest.sources.postgres.postgres_connection import Connection, connect, fail_if_locked
from ingest.sources.postgres.postgres_types import Cast, cast

_DOMAINS = """
SELECT format_type(oid, NULL), format_type(typbasetype, typtypmod) FROM pg_type WHERE typtype = 'd'
"""
# The comments of tables, with the column 0, and of their columns.
_COMMENTS = """
SELECT objoid::bigint, objsubid, description FROM pg_description
WHERE classoid = 'pg_class'::regclass AND objoid = ANY (%(oids)s::oid[])
"""
Comments = Mapping[tuple[int, int], str]


@dataclass(frozen=True)
class _View:
    """A table and its view. names, casts: the view's column names and casts, by column name in the source. comments: of
    the source, by oid and column number.
    """

    source: str
    model: str
    table: CatalogTable
    reader: ColumnReader
    names: Mapping[str, str]
    casts: Mapping[str, Cast]
    comments: Comments

    @property
    def keeps_text(self) -> bool:
        return any(column_cast.not_held for column_cast in self.casts.values())


def views(source: PostgresSource, settings: JobSettings, record: Record) -> SourceViews:
    """The views of all tables of `source` that can be replicated. record: of the existing views.

    Raises CannotConnect; a Failure if a table stays locked.
    """
    dsn = source.dsn.get_secret_value()
    with (
        connect(dsn, connect_timeout_seconds=settings.connect_timeout_seconds) as connection,
        fail_if_locked(connection, source.name),
    ):
        tables = catalog_tables.read_tables(connection, source.selects)
        usable = [table for table in tables if not table.problem]
        models = staging_models(source, usable, domains(connection), record, read_comments(connection, usable))
    return SourceViews(models, {table.table_name: table.problem for table in tables if table.problem}, "tables")


def domains(connection: Connection) -> dict[str, str]:
    """The base type of each domain, both as format_type writes them."""
    return dict(connection.execute(_DOMAINS).fetchall())


def read_comments(connection: Connection, tables: Sequence[CatalogTable]) -> Comments:
    """The comments of tables and columns, by the table's oid and the column's number; 0 for the table itself."""
    rows = connection.execute(_COMMENTS, {"oids": [table.oid for table in tables]}).fetchall()
    return {(oid, column): one_line(text) for oid, column, text in rows}


def staging_models(
    source: PostgresSource,
    tables: Sequence[CatalogTable],
    domains: Mapping[str, str],
    record: Record,
    comments: Comments | None = None,
) -> list[View]:
    """The view of each table. domains: of `domains`. record: of the existing views. comments: of `read_comments`."""
    by_name = {table.table_name: table for table in tables}
    shorts = {name: (_short(table),) for name, table in by_name.items()}
    models = []
    for model, name in model_names(source.name, shorts, record.names).items():
        table = by_name[name]
        view_columns = column_names([(column.name,) for column in table.columns], record.columns(model))
        reader = ColumnReader([column.name for column in table.columns])
        casts = {c.name: cast(c.name, c.type, domains, reader) for c in table.columns}
        names = {column: name_in_view for (column,), name_in_view in view_columns.items()}
        view = _View(source.name, model, table, reader, names, casts, comments or {})
        models.append(View(model, name, _sql(view), _yml(view)))
    return models


def _short(table: CatalogTable) -> str:
    return table.name if table.schema == "public" else f"{table.schema}__{table.name}"


def _sql(view: _View) -> str:
    keyless = view.table.key_columns is None
    row_key = "if(copy = 1, row_key, row_key || '#' || copy)" if keyless else "row_key"
    selected = [f"{row_key} as _row_key", "checkpoint_id as _checkpoint_id"]
    if view.keeps_text:
        selected.append("columns as _columns")
    selected += [
        f"{view.casts[column].sql} as {escape_jinja(quote_identifier(to))}" for column, to in view.names.items()
    ]
    generator = "lateral view explode(sequence(1, multiplicity)) as copy" if keyless else ""
    query = ViewQuery(view.source, view.table.table_name, view.reader, view.names.values(), selected, generator)
    return model_sql(view.model, query)


_TEXTS = "Each column's text as Postgres prints it, by name; also what Spark's types can't hold."


def _yml(view: _View) -> str:
    key = "JSON of the key's values."
    if view.table.key_columns is None:
        key = "JSON of all values, as there is no key, and `#` and a number for each further copy."
    columns = {"_row_key": key, "_checkpoint_id": CHECKPOINT}
    if view.keeps_text:
        columns["_columns"] = _TEXTS
    own = {escape_jinja(view.names[each.name]): escape_jinja(_description(view, each)) for each in view.table.columns}
    about = (
        f"The rows of `{view.table.table_name}` of source `{view.source}`, typed. "
        "Written by `tidemark codegen`, yours to edit."
    )
    comment = view.comments.get((view.table.oid, 0), "")
    return model_yml(
        view.model,
        Description(view.source, view.table.table_name, about, {**columns, **own}, list(own), _key(view), comment),
    )


def _key(view: _View) -> str:
    """The column that identifies a row: the key's only column, if its name needs no quotes."""
    if view.table.key_columns is not None and len(view.table.key_columns) == 1:
        name = view.names.get(view.table.key_columns[0])  # a generated column is not shown
        if name is not None and quote_identifier(name) == name:
            return name
    return "_row_key"


def _description(view: _View, column: Column) -> str:
    text = column.type
    if view.names[column.name] != column.name:
        text += f"; column {json.dumps(column.name, ensure_ascii=False)} of the source"
    if not_held := view.casts[column.name].not_held:
        text += f"; NULL for {not_held}, whose text is in _columns"
    comment = view.comments.get((view.table.oid, column.attnum))
    return f"{comment} ({text})" if comment else text
