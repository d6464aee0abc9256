"""Whether the lake is the source: every table row by row, every bucket by SQL on the source itself.

What the source says is read by its own COPY and parsed by pyarrow, with nothing of the pipeline's
code in between. To be asked while the source stands still and all of it is modelled.
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

_TIMES = """map('timestampFormat', "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX", 'timeZone', 'UTC')"""
_KEY = ["bucket", "object_type", "object_id", "row_key"]


@dataclass(frozen=True)
class Compared:
    """What was compared with what; its rows; the first differences, empty if it is equal."""

    name: str
    against: str
    rows: int
    problem: str = ""


def compare_all(spark: SparkSession, dsn: str, definitions: tuple[Definition, ...]) -> Iterator[Compared]:
    """Everything there is to compare, in order, two at once; the weather is copied out by then (see `weather`)."""
    work: list[Callable[[], Compared]] = [partial(compare_table, spark, dsn, table) for table in TABLES]
    work.append(partial(compare_collection, spark, dsn))
    for definition in definitions:
        work.append(partial(compare_bucket, spark, dsn, definition))
        work += [partial(compare, spark, definition) for compare in (compare_log, compare_checksums)]
    with ThreadPoolExecutor(2) as pool:
        yield from pool.map(lambda compare: compare(), work)


def compare_table(spark: SparkSession, dsn: str, table: Table) -> Compared:
    """The rows as landed, in the source's own text, and as the staging view shows them."""
    texts = ", ".join(f"columns['{name}'] as {name}" for name in table.names)
    key = table.key.split(", ")
    landed = spark.sql(
        f"select {texts} from core.row_state "
        f"where source = '{SOURCE}' and table_name = '{table.qualified}' and not deleted"
    ).toArrow()
    typed = spark.sql(f"select {', '.join(table.names)} from staging.stg_{SOURCE}__{table.name}").toArrow()
    text = read_source(dsn, f"select {', '.join(table.names)} from {table.qualified}")
    problems = (difference(ours, parse(text, ours.schema), key) for ours in (landed, typed))
    problem = next(filter(None, problems), "")
    return Compared(table.qualified, "COPY of the source", landed.num_rows, problem)


def compare_collection(spark: SparkSession, dsn: str) -> Compared:
    """The weather's documents as the staging view shows them, with those that were copied out of MongoDB."""
    names = ", ".join(OBSERVED.names)
    typed = spark.sql(f"select {names} from staging.stg_{SKY}__{OBSERVED.name}").toArrow()
    text = read_source(dsn, f"select {names} from {OBSERVED.qualified}")
    problem = difference(typed, parse(text, typed.schema), OBSERVED.key.split(", "))
    return Compared(WEATHER, "find() of the source", typed.num_rows, problem)


def compare_bucket(spark: SparkSession, dsn: str, definition: Definition) -> Compared:
    """The rows now, with the definition's equivalent on the source."""
    names = [*_KEY, *definition.columns]
    ours = spark.sql(f"select {', '.join(names)} from {definition.table}").toArrow()
    text = read_source(dsn, f"select {', '.join(names)} from ({definition.on_source}) as expected")
    problem = difference(ours, parse(text, ours.schema), ["bucket", "row_key"])
    return Compared(definition.table, "SQL on the source", ours.num_rows, problem)


def compare_log(spark: SparkSession, definition: Definition) -> Compared:
    """The rows now, with what the op log gives when it is replayed."""
    keys, columns = ", ".join(_KEY), ", ".join(definition.columns)
    types = dict(spark.table(definition.table).dtypes)
    schema = ", ".join(f"{name} {types[name]}" for name in definition.columns)
    objects = ", ".join(f"object.{name}" for name in definition.columns)
    rows = f"select _op_id as op_id, struct({keys}, _checksum as checksum, {columns}) as object from {definition.table}"
    replayed = f"""
        select last.op_id, struct({keys}, last.checksum, {objects}) as object
        from (
            select *, from_json(last.data, '{schema}', {_TIMES}) as object
            from (
                select {keys}, max_by(struct(op, op_id, checksum, data), op_id) as last
                from {definition.log}
                where op in ('PUT', 'REMOVE')
                group by {keys}
            )
            where last.op = 'PUT'
        )
    """
    differing = spark.sql(
        f"select op_id, rows.object, replayed.object as in_log from ({rows}) as rows "
        f"full join ({replayed}) as replayed using (op_id) where not rows.object <=> replayed.object limit 2"
    )
    found = [str(row.asDict()) for row in differing.collect()]
    ops = spark.table(definition.log).count()
    problem = f"rows and replayed log differ: {'; '.join(found)}" if found else ""
    return Compared(definition.log, "replayed: the rows", ops, problem)


def compare_checksums(spark: SparkSession, definition: Definition) -> Compared:
    """Each op's checksum, and by that each bucket's, which is their sum."""
    ops = spark.sql(f"select op, object_type, object_id, row_key, data, checksum from {definition.log}")
    counts = ops.mapInArrow(count_wrong, "ops bigint, wrong bigint").toArrow()
    wrong = sum(counts["wrong"].to_pylist())
    problem = f"{wrong} ops have another checksum than their data" if wrong else ""
    return Compared(definition.log, "SHA-256 of each op", sum(counts["ops"].to_pylist()), problem)


def count_wrong(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """How many ops there are, and how many whose checksum is not that of their content."""
    for batch in batches:
        wrong = sum(
            checksum(*values) != found for *values, found in zip(*(column.to_pylist() for column in batch), strict=True)
        )
        yield pa.RecordBatch.from_pydict({"ops": [batch.num_rows], "wrong": [wrong]})


def checksum(op: str, object_type: str, object_id: str, row_key: str, data: str | None) -> int:
    """An op's: the first four bytes, little-endian, of the SHA-256 of what it says."""
    text = f"put.{object_type}.{object_id}.{data}" if op == "PUT" else f"delete.{row_key}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "little")


def read_source(dsn: str, query: str) -> bytes:
    """The rows of a query as the source's COPY prints them, as CSV."""
    with connect(dsn) as connection:
        return b"".join(copy_out(connection, f"copy ({query}) to stdout (format csv)"))


def parse(text: bytes, schema: pa.Schema) -> pa.Table:
    """CSV of COPY as `schema`: nothing at all is null, `""` an empty string."""
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


def difference(ours: pa.Table, theirs: pa.Table, key: list[str]) -> str:
    """Empty if the tables hold the same rows in any order; else how many differ, with examples."""
    order = [(name, "ascending") for name in key]
    ours, theirs = ours.sort_by(order), theirs.sort_by(order)
    if ours.num_rows == theirs.num_rows and ours.combine_chunks() == theirs.combine_chunks():
        return ""
    mine, other = (Counter(zip(*(c.to_pylist() for c in t.columns), strict=True)) for t in (ours, theirs))
    extra, missing = mine - other, other - mine
    if not extra and not missing:
        return ""
    found = f"{extra.total()} rows are in the lake only, {missing.total()} in the source only"
    examples = [f"{where}: {next(iter(rows))}" for where, rows in (("lake", extra), ("source", missing)) if rows]
    return "; ".join([found, *examples])
