"""The staging views of a MongoDB source: for each collection a dbt model and its yml, typed by a sample.

`staging_models` is pure: the same documents give the same text. Each field of a nested document is a column; a field
with values of several types, or arrays, is shown as text.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ingest.codegen.staging_files import CHECKPOINT, Description, SourceViews, View, model_yml
from ingest.codegen.staging_record import Record
from ingest.codegen.view_names import FieldPath, column_names, escape_jinja, model_names, quote_identifier
from ingest.codegen.view_sql import ColumnReader, ViewQuery, model_sql
from ingest.common.errors import one_line
from ingest.config.job_settings import JobSettings
from ingest.config.sources_file import MongoSource
from ingest.sources.mongodb import collection_catalog, mongodb_connection, raw_cursor
from ingest.sources.mongodb.bson import documents
from ingest.sources.mongodb.bson.documents import Parsed
from ingest.sources.mongodb.mongodb_connection import Client

SAMPLE = 1000
# Spark resolves at most a hundred nesting levels, of which models over the view need some. A hundred fields of this
# depth take it five seconds.
_MOST_LEVELS = 32
# Nested documents are columns down to the level at which a view has at most this many columns. The rest stays JSON.
_MOST_COLUMNS = 1000
# A nested document with more fields than this in the sample is a mapping of keys, not a record.
_MOST_FIELDS = 50
# The type of a value in canonical Extended JSON, by its only key.
_KINDS = {
    "$numberInt": "long",
    "$numberLong": "long",
    "$numberDouble": "double",
    "$numberDecimal": "decimal",
    "$oid": "object_id",
    "$date": "date",
    "$timestamp": "timestamp",
}
_TEXT, _NESTED = "text", "document"
_ABOUT = {
    "long": "integer",
    "double": "double; integers too",
    "decimal": "decimal128, as text",
    "boolean": "boolean",
    "object_id": "ObjectId, as hexadecimal digits",
    "date": "date; NULL before year 1 and from year 294247 on",
    "timestamp": "BSON timestamp",
    "binary": "binary",
    "uuid": "UUID, as text",
    "string": "string",
    _TEXT: "string, or the JSON of other types",
}
_ROW_KEY = "JSON of the document's _id."
_FIELDS = "Each top-level field's canonical Extended JSON, by name."


@dataclass(frozen=True)
class Field:
    """A field by its path, and the kind of its values: a kind with a macro, `string` or `text`."""

    path: FieldPath
    kind: str

    def sql(self, reader: ColumnReader) -> str:
        """The Jinja expression that reads the field."""
        expression = reader.argument(self.path)
        macro = _TEXT if self.kind == "string" else self.kind
        # A nested string is returned without quotes.
        return f"{{{{ {expression if macro == _TEXT and self.path[1:] else f'tidemark.bson_{macro}({expression})'} }}}}"


def views(source: MongoSource, settings: JobSettings, record: Record) -> SourceViews:
    """The views of all collections of `source` that can be replicated. record: of the existing views.

    Raises CannotConnect.
    """
    with mongodb_connection.connect(source.uri.get_secret_value(), settings.connect_timeout_seconds) as client:
        collections = [
            collection
            if collection.problem
            else replace(collection, problem=collection_catalog.read_problem(client, collection))
            for collection in collection_catalog.list_collections(client, source)
        ]
        usable = {
            collection.full_name: _sample(client, collection) for collection in collections if not collection.problem
        }
    problems = {collection.full_name: collection.problem for collection in collections if collection.problem}
    return SourceViews(staging_models(source, usable, record), problems, "collections")


def _sample(client: Client, collection: collection_catalog.Collection) -> list[Parsed]:
    """The first and the last documents by `_id`: unlike a random sample, the same while the collection is unchanged."""
    raw_documents: set[bytes] = set()
    for order in (1, -1):
        # One reply has up to 16 MB.
        half = {"limit": SAMPLE // 2, "batchSize": SAMPLE // 2, "singleBatch": True}
        with client.start_session() as session:
            find = {"find": collection.name, "sort": {"_id": order}, **half}
            raw_documents.update(*raw_cursor.replies(client, session, collection.database, find))
    return [documents.parse(document) for document in sorted(raw_documents)]


def staging_models(source: MongoSource, samples: Mapping[str, Sequence[Parsed]], record: Record) -> list[View]:
    """The view of each collection. samples: parsed documents by `database.collection`. record: of the views that are
    there.
    """
    one_database = len({name.partition(".")[0] for name in samples}) == 1
    models = []
    for model, name in model_names(source.name, _shorts(samples, one_database), record.names).items():
        by_path = {field.path: field for field in fields(samples[name])}
        names = column_names(list(by_path), record.columns(model))
        columns = {names[path]: field for path, field in by_path.items()}
        models.append(
            View(model, name, _sql(source.name, name, model, columns), _yml(source.name, name, model, columns))
        )
    return models


def _shorts(collections: Iterable[str], one_database: bool) -> dict[str, tuple[str, str]]:
    """The short name of each collection: without its database if there is only one."""
    both = {name: (name.partition(".")[2], name.replace(".", "__", 1)) for name in collections}
    return both if one_database else {name: (long, short) for name, (short, long) in both.items()}


def fields(sample: Iterable[Parsed]) -> list[Field]:
    """The fields of documents in the order of the largest document; nested fields at the position of their document."""
    kinds: dict[FieldPath, set[str]] = {}
    for document in sorted(sample, key=lambda document: -len(document)):
        _look(document, (), kinds)
    children: dict[FieldPath, list[FieldPath]] = {}
    for path in kinds:
        children.setdefault(path[:-1], []).append(path)
    levels = _MOST_LEVELS
    while True:
        columns = [field for path in children.get((), ()) for field in _fields_of(path, kinds, children, levels)]
        if len(columns) <= _MOST_COLUMNS or levels <= 1:
            return columns
        levels = min(levels, max(len(field.path) for field in columns)) - 1


def _look(document: Mapping[str, Any], above: FieldPath, kinds: dict[FieldPath, set[str]]) -> None:
    for name, value in document.items():
        path = (*above, name)
        seen = kinds.setdefault(path, set())
        if value is None:
            continue
        kind = kind_of(value)
        seen.add(kind)
        if kind == _NESTED and len(path) < _MOST_LEVELS:
            _look(value, path, kinds)


def kind_of(value: Any) -> str:
    """The kind of a parsed value."""
    if isinstance(value, str):
        return "string"
    if isinstance(value, bool):
        return "boolean"
    if not isinstance(value, dict):
        return _TEXT
    first, inner = next(iter(value.items()), ("", None))
    if first == "$binary" and isinstance(inner, dict):
        return "uuid" if inner.get("subType") == "04" else "binary"
    return _KINDS.get(first, _TEXT if first.startswith("$") else _NESTED)


def _fields_of(
    path: FieldPath, kinds: Mapping[FieldPath, set[str]], children: Mapping[FieldPath, list[FieldPath]], levels: int
) -> list[Field]:
    """The columns of a field. children: the paths of the fields of each document. levels: how deep to unfold."""
    below = children.get(path, [])
    if kinds[path] == {_NESTED} and 0 < len(below) <= _MOST_FIELDS and len(path) < levels:
        return [field for child in below for field in _fields_of(child, kinds, children, levels)]
    return [Field(path, _merged(kinds[path]))]


def _merged(kinds: set[str]) -> str:
    if kinds == {"long", "double"}:
        return "double"
    (kind,) = kinds if len(kinds) == 1 else (_TEXT,)
    return _TEXT if kind == _NESTED else kind


def _sql(source: str, name: str, model: str, columns: Mapping[str, Field]) -> str:
    reader = ColumnReader(list(dict.fromkeys(field.path[0] for field in columns.values())))
    selected = ["row_key as _row_key", "checkpoint_id as _checkpoint_id", "columns as _columns"]
    selected += [
        f"{field.sql(reader)} as {escape_jinja(quote_identifier(column))}" for column, field in columns.items()
    ]
    return model_sql(model, ViewQuery(source, name, reader, columns, selected))


def _yml(source: str, name: str, model: str, columns: Mapping[str, Field]) -> str:
    about = (
        f"The documents of `{name}` of source `{source}`, typed by a sample. "
        "Written by `tidemark codegen`, yours to edit."
    )
    described = {"_row_key": _ROW_KEY, "_checkpoint_id": CHECKPOINT, "_columns": _FIELDS}
    own = {}
    for column, field in columns.items():
        where = f"; field {' of '.join(reversed(field.path))}" if field.path != (column,) else ""
        own[escape_jinja(column)] = escape_jinja(one_line(_ABOUT[field.kind] + where))
    return model_yml(model, Description(source, name, about, {**described, **own}, list(own)))
