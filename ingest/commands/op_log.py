"""A bucket's op log as JSON lines, read at one Iceberg snapshot to its head."""

import json
import re
from collections.abc import Iterator

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from ingest.common.errors import Failure, UsageError
from ingest.lake.model_tables import read_definition_tables
from ingest.lake.sorted_rows import iter_sorted
from ingest.lake.sql_literals import literal

_CONTROL_ESCAPE = re.compile(r"((?<!\\)(?:\\\\)*)\\u(00[0-9a-f]{2})")
_FIELDS = ("op_id", "op", "object_type", "object_id", "row_key", "data", "checksum", "superseded_by", "checkpoint_id")


def make_bucket_name(definition: str, values: str) -> str:
    """The full name of a bucket. values: the full name, a JSON array of the bucket's values, or its one value."""
    if values.startswith(f"{definition}["):
        return values
    try:
        bucket_values = json.loads(values, parse_int=str, parse_float=str)
    except ValueError:
        if values.startswith("["):
            raise UsageError(
                f"the bucket {values!r} is not a JSON array", "the command line", 'Write it as ["EU", "7"]'
            ) from None
        bucket_values = None
    if not isinstance(bucket_values, list):
        bucket_values = [values]
    texts = [value if value is None or isinstance(value, str) else json.dumps(value) for value in bucket_values]
    bucket_json = json.dumps(texts, separators=(",", ":"), ensure_ascii=False)
    # Spark writes control characters with capital letters.
    return definition + _CONTROL_ESCAPE.sub(lambda match: match[1] + "\\u" + match[2].upper(), bucket_json)


def read_ops(spark: SparkSession, definition: str, bucket: str, after_op_id: int) -> Iterator[str]:
    """The ops of `bucket` with an op_id above `after_op_id`, as JSON objects, in order.

    If ops up to `after_op_id` were compacted into a later CLEAR, that CLEAR comes first: a reader that applies it
    deletes all its rows. `data` is a string, the exact input of the checksum: parsed and printed again, 1.00 would
    become 1.0.

    Raises UsageError if there is no such definition, Failure if `after_op_id` is past the end of its log.
    """
    table = _find_log_table(spark, definition)
    try:
        head = spark.sql(f"SELECT coalesce(max(op_id), 0) AS op_id FROM {table}").collect()[0].op_id
    except AnalysisException:
        raise UsageError(
            f"no op log of a definition {definition!r}", "the lake", "`tidemark plan` lists the definitions"
        ) from None
    if after_op_id and not _find_last_dropped_op(spark, definition) < after_op_id <= head:
        raise Failure(
            f"op {after_op_id} is not in the log, whose last op is {head}",
            table.replace("`", ""),
            "The log was rebuilt. Discard your copy and read again without --after",
        )
    ops = spark.sql(
        f"SELECT {', '.join(_FIELDS)} FROM {table} WHERE bucket = {literal(bucket)} AND op_id > {after_op_id}"
    )
    for row in iter_sorted(ops, "op_id"):
        op = {name: row[name] for name in _FIELDS if row[name] is not None}
        yield json.dumps(op, ensure_ascii=False, separators=(",", ":"))


def _find_last_dropped_op(spark: SparkSession, definition: str) -> int:
    """The last op_id of dropped logs of the definition; the current log continues after it (`Releases.last_op`)."""
    of_dropped = f"model = {literal(definition)} AND dropped"
    query = f"SELECT coalesce(max(last_op), 0) AS op_id FROM core.releases WHERE {of_dropped}"
    return int(spark.sql(query).collect()[0].op_id)


def is_known(spark: SparkSession, definition: str, bucket: str) -> bool:
    """Whether an op of `bucket` was ever logged."""
    query = f"SELECT 1 FROM {_find_log_table(spark, definition)} WHERE bucket = {literal(bucket)} LIMIT 1"
    return bool(spark.sql(query).collect())


def _find_log_table(spark: SparkSession, definition: str) -> str:
    schema = read_definition_tables(spark).get(definition, "buckets").partition(".")[0]
    return f"{schema}.`{definition}__ops`"
