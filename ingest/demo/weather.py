"""The demo's MongoDB source: the hourly weather at New York's airports, a document for each hour.

For the comparison the documents are copied into a Postgres table that is not replicated, so that SQL can query both
sources.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import psycopg
import pyarrow as pa
from bson import Decimal128
from bson.codec_options import CodecOptions
from pymongo import MongoClient

from ingest.demo.data import Table

SOURCE = "sky"
DATABASE, COLLECTION = "sky", "weather"
NAME = f"{DATABASE}.{COLLECTION}"
# The table that the documents are copied into.
OBSERVED = Table(
    "weather",
    "_id text, origin text, time_hour timestamptz, temp double precision, dewp double precision, "
    "humid double precision, precip text, pressure double precision, visib double precision, wind_dir integer, "
    "wind_speed double precision, wind_gust double precision",
    "origin, time_hour",
    schema="observed",
)
_WIND_PREFIX = "wind_"
Document = dict[str, Any]


def make_documents(rows: pa.Table) -> Iterator[Document]:
    """The data set's rows as documents: null values are left out, the wind is a nested document."""
    for row in rows.to_pylist():
        values: Document = {name: value for name, value in row.items() if value is not None}
        values["time_hour"] = datetime.fromisoformat(values["time_hour"].replace("Z", "+00:00"))
        document: Document = {"_id": _make_id(values["origin"], values["time_hour"])}
        document |= {name: values[name] for name in OBSERVED.names if name in values}
        if "precip" in values:
            document["precip"] = Decimal128(f"{values['precip']:.2f}")
        wind = {
            name.removeprefix(_WIND_PREFIX): document.pop(name)
            for name in list(document)
            if name.startswith(_WIND_PREFIX)
        }
        yield {**document, "wind": wind}


def load_documents(uri: str, rows: pa.Table) -> int:
    """Inserts the documents into a database that is dropped first; returns their number."""
    with connect(uri) as client:
        client.drop_database(DATABASE)
        collection = client[DATABASE].create_collection(COLLECTION, changeStreamPreAndPostImages={"enabled": True})
        return len(collection.insert_many(make_documents(rows), ordered=False).inserted_ids)


def apply_storm(client: MongoClient[Document], origin: str, hour: datetime) -> int:
    """Reduces the visibility of an hour and adds rain; returns the number of changed documents."""
    change = {"$set": {"visib": 0.5}, "$inc": {"precip": Decimal128("0.11")}}
    return client[DATABASE][COLLECTION].update_one({"_id": _make_id(origin, hour)}, change).modified_count


def copy_documents(uri: str, dsn: str) -> None:
    """Copies the current documents of the collection into `OBSERVED`."""
    options = CodecOptions[Document](tz_aware=True)
    with connect(uri) as client, psycopg.connect(dsn) as connection:
        connection.execute(f"drop schema if exists {OBSERVED.schema} cascade".encode())
        connection.execute(f"create schema {OBSERVED.schema}".encode())
        connection.execute(OBSERVED.ddl.encode())
        with connection.cursor().copy(f"copy {OBSERVED.qualified} from stdin".encode()) as copy:
            for document in client[DATABASE].get_collection(COLLECTION, codec_options=options).find():
                values = document | {f"{_WIND_PREFIX}{name}": value for name, value in document["wind"].items()}
                copy.write_row([_convert_value(values.get(name)) for name in OBSERVED.names])


def _make_id(origin: str, hour: datetime) -> str:
    return f"{origin} {hour:%Y-%m-%dT%H}"


def _convert_value(value: Any) -> Any:
    return str(value) if isinstance(value, Decimal128) else value


def connect(uri: str) -> MongoClient[Document]:
    """A client; the caller closes it."""
    return MongoClient(uri)
