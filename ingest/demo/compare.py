"""Compares the lake with the source: every table row by row, every bucket with SQL on the source.

The rows of the source are read by its COPY and parsed by pyarrow, without the pipeline's code. The source must not
change during the comparison, and the models must have caught up.
"""

import hashlib
import io
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.csv
from pyspark.sql import SparkSession

from ingest.demo.data import SOURCE, TABLES, Table
from ingest.demo.definitions import Definition
from ingest.demo.weather import NAME as WEATHER
from ingest.demo.weather import OBSERVED
from ingest.demo.weather import SOURCE as SKY
from ingest.sources.postgres.postgres_connection import connect, copy_out

_TIME_OPTIONS = """map('timestampFormat', "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX", 'timeZone', 'UTC')"""
_KEY_COLUMNS = ["bucket", "object_type", "object_id", "row_key"]


@dataclass(frozen=True)
class Comparison:
    """The result of a comparison. problem: the first differences; empty if both sides are equal."""

    name: str
    against: str
    rows: int
    problem: str = ""


def compare_all(spark: SparkSession, dsn: str, definitions: tuple[Definition, ...]) -> Iterator[Comparison]:
    """All comparisons in order, two at a time. The weather must have been copied before (see `weather`)."""
    comparisons: list[Callable[[], Comparison]] = [partial(compare_table, spark, dsn, table) for table in TABLES]
    comparisons.append(partial(compare_collection, spark, dsn))
    for definition in definitions:
        comparisons.append(partial(compare_bucket, spark, dsn, definition))
        comparisons += [partial(compare, spark, definition) for compare in (compare_log, compare_checksums)]
    with ThreadPoolExecutor(2) as pool:
        yield from pool.map(lambda compare: compare(), comparisons)


def compare_table(spark: SparkSession, dsn: str, table: Table) -> Comparison:
    """Compares the rows of a table: their text in `core.row_state`, and their values in the staging view."""
    columns = ", ".join(f"columns['{name}'] as {name}" for name in table.names)
    key = table.key.split(", ")
    stored_rows = spark.sql(
        f"select {columns} from core.row_state "
        f"where source = '{SOURCE}' and table_name = '{table.qualified}' and not deleted"
    ).toArrow()
    view_rows = spark.sql(f"select {', '.join(table.names)} from staging.stg_{SOURCE}__{table.name}").toArrow()
    source_csv = read_source(dsn, f"select {', '.join(table.names)} from {table.qualified}")
    problems = (
        describe_difference(actual, parse_csv(source_csv, actual.schema), key) for actual in (stored_rows, view_rows)
    )
    problem = next(filter(None, problems), "")
    return Comparison(table.qualified, "COPY of the source", stored_rows.num_rows, problem)


def compare_collection(spark: SparkSession, dsn: str) -> Comparison:
    """Compares the weather's documents in the staging view with those that were copied out of MongoDB."""
    names = ", ".join(OBSERVED.names)
    view_rows = spark.sql(f"select {names} from staging.stg_{SKY}__{OBSERVED.name}").toArrow()
    source_csv = read_source(dsn, f"select {names} from {OBSERVED.qualified}")
    problem = describe_difference(view_rows, parse_csv(source_csv, view_rows.schema), OBSERVED.key.split(", "))
    return Comparison(WEATHER, "find() of the source", view_rows.num_rows, problem)


def compare_bucket(spark: SparkSession, dsn: str, definition: Definition) -> Comparison:
    """Compares the current rows with the definition's equivalent on the source."""
    names = [*_KEY_COLUMNS, *definition.columns]
    actual = spark.sql(f"select {', '.join(names)} from {definition.table}").toArrow()
    source_csv = read_source(dsn, f"select {', '.join(names)} from ({definition.on_source}) as expected")
    problem = describe_difference(actual, parse_csv(source_csv, actual.schema), ["bucket", "row_key"])
    return Comparison(definition.table, "SQL on the source", actual.num_rows, problem)


def compare_log(spark: SparkSession, definition: Definition) -> Comparison:
    """Compares the current rows with the replayed op log."""
    keys, columns = ", ".join(_KEY_COLUMNS), ", ".join(definition.columns)
    types = dict(spark.table(definition.table).dtypes)
    schema = ", ".join(f"{name} {types[name]}" for name in definition.columns)
    objects = ", ".join(f"object.{name}" for name in definition.columns)
    rows = f"select _op_id as op_id, struct({keys}, _checksum as checksum, {columns}) as object from {definition.table}"
    replayed = f"""
        select last.op_id, struct({keys}, last.checksum, {objects}) as object
        from (
            select *, from_json(last.data, '{schema}', {_TIME_OPTIONS}) as object
            from (
                select {keys}, max_by(struct(op, op_id, checksum, data), op_id) as last
                from {definition.log}
                where op in ('PUT', 'REMOVE')
                group by {keys}
            )
            where last.op = 'PUT'
        )
    """
    differences = spark.sql(
        f"select op_id, rows.object, replayed.object as in_log from ({rows}) as rows "
        f"full join ({replayed}) as replayed using (op_id) where not rows.object <=> replayed.object limit 2"
    )
    examples = [str(row.asDict()) for row in differences.collect()]
    ops = spark.table(definition.log).count()
    problem = f"rows and replayed log differ: {'; '.join(examples)}" if examples else ""
    return Comparison(definition.log, "replayed: the rows", ops, problem)


def compare_checksums(spark: SparkSession, definition: Definition) -> Comparison:
    """Checks the checksum of each op, and so that of each bucket, which is their sum."""
    ops = spark.sql(f"select op, object_type, object_id, row_key, data, checksum from {definition.log}")
    counts = ops.mapInArrow(count_wrong, "ops bigint, wrong bigint").toArrow()
    wrong_count = sum(counts["wrong"].to_pylist())
    problem = f"{wrong_count} ops have a checksum that does not match their data" if wrong_count else ""
    return Comparison(definition.log, "SHA-256 of each op", sum(counts["ops"].to_pylist()), problem)


def count_wrong(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The number of ops, and of ops whose checksum does not match their content."""
    for batch in batches:
        wrong_count = sum(
            checksum(*values) != stored_checksum
            for *values, stored_checksum in zip(*(column.to_pylist() for column in batch), strict=True)
        )
        yield pa.RecordBatch.from_pydict({"ops": [batch.num_rows], "wrong": [wrong_count]})


def checksum(op: str, object_type: str, object_id: str, row_key: str, data: str | None) -> int:
    """The checksum of an op: the first four bytes, little-endian, of the SHA-256 of its content."""
    text = f"put.{object_type}.{object_id}.{data}" if op == "PUT" else f"delete.{row_key}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "little")


def read_source(dsn: str, query: str) -> bytes:
    """The rows of a query as the source's COPY prints them, as CSV."""
    with connect(dsn) as connection:
        return b"".join(copy_out(connection, f"copy ({query}) to stdout (format csv)"))


def parse_csv(text: bytes, schema: pa.Schema) -> pa.Table:
    """Parses CSV of COPY as `schema`: an empty field is null, `""` an empty string."""
    if not text:
        return schema.empty_table()
    return pa.csv.read_csv(
        io.BytesIO(text),
        pa.csv.ReadOptions(column_names=schema.names),
        pa.csv.ParseOptions(newlines_in_values=True),
        pa.csv.ConvertOptions(
            column_types=schema,
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )


def describe_difference(actual: pa.Table, expected: pa.Table, key: list[str]) -> str:
    """The number of different rows, with examples; empty if the tables have the same rows in any order."""
    order = [(name, "ascending") for name in key]
    actual, expected = actual.sort_by(order), expected.sort_by(order)
    if actual.num_rows == expected.num_rows and actual.combine_chunks() == expected.combine_chunks():
        return ""
    actual_rows, expected_rows = (
        Counter(zip(*(c.to_pylist() for c in t.columns), strict=True)) for t in (actual, expected)
    )
    extra, missing = actual_rows - expected_rows, expected_rows - actual_rows
    if not extra and not missing:
        return ""
    summary = f"{extra.total()} rows are in the lake only, {missing.total()} in the source only"
    examples = [f"{where}: {next(iter(rows))}" for where, rows in (("lake", extra), ("source", missing)) if rows]
    return "; ".join([summary, *examples])
