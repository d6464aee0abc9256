"""Repeated compaction of op logs: readers at any op id reach the same rows and checksum."""

import copy
import random
from dataclasses import dataclass, field
from typing import Any

from jinja2 import Environment
from pyspark.sql import SparkSession

from tests.harness.bucket_client import BucketClient
from tests.harness.project_copy import ROOT

BUCKETS = 150
ROUNDS = 3
SCHEMA = (
    "bucket string, op_id bigint, op string, object_type string, object_id string, row_key string, data string, "
    "checksum bigint, superseded_by bigint, checkpoint_id bigint"
)
NAMES = [column.split()[0] for column in SCHEMA.split(", ")]

Op = dict[str, Any]


@dataclass
class Log:
    """The log of one definition: as written, and as compacted."""

    draw: random.Random
    written: list[Op] = field(default_factory=list)
    kept: list[Op] = field(default_factory=list)
    _standing: set[tuple[Any, ...]] = field(default_factory=set)

    def grow(self, bucket: str) -> None:
        """Logs an op on one of eight objects, of all kinds that a definition can log."""
        draw = self.draw
        key = (draw.choice("xy"), draw.choice(["1", None]), draw.choice("pq"))
        removes = (bucket, key) in self._standing and draw.random() < 0.5
        (self._standing.discard if removes else self._standing.add)((bucket, key))
        op_id = (self.written[-1]["op_id"] if self.written else 0) + draw.randint(1, 3)
        data = None if removes else f"data of {op_id}"
        values = (bucket, op_id, "REMOVE" if removes else "PUT", *key, data, draw.getrandbits(32), None, 1)
        op = dict(zip(NAMES, values, strict=True))
        self.written.append(op)
        self.kept.append(op)


def read(ops: list[Op], bucket: str, reader: BucketClient | None = None) -> BucketClient:
    reader = copy.deepcopy(reader) if reader else BucketClient()
    for op in ops:
        if op["bucket"] == bucket and op["op_id"] > reader.last_op_id:
            reader.apply(op)
    return reader


def compact(spark: SparkSession, ops: list[Op]) -> list[Op]:
    text = (ROOT / "macros/maintenance/compacted_log.sql").read_text()
    macros: Any = Environment(autoescape=False, extensions=["jinja2.ext.do"]).from_string(text).module
    spark.createDataFrame([tuple(op.values()) for op in ops], SCHEMA).createOrReplaceTempView("log_to_compact")
    rows = spark.sql(macros.compacted_log("log_to_compact")).collect()
    return sorted((row.asDict() for row in rows), key=lambda op: int(op["op_id"]))


def test_readers_at_any_op_id_reach_the_same_rows_and_checksum(spark: SparkSession) -> None:
    log = Log(random.Random(5))
    buckets = [f"d[{number}]" for number in range(BUCKETS)]
    readers: list[tuple[str, BucketClient]] = []
    for _ in range(ROUNDS):
        for bucket in buckets * 6:
            if log.draw.random() < 0.7:
                log.grow(bucket)
            if log.draw.random() < 0.3:
                readers.append((bucket, read(log.kept, bucket)))
        last = log.kept[-1]["op_id"]
        log.kept = compact(spark, log.kept)
        assert log.kept[-1]["op_id"] == last  # no op id is used twice
        check_compacted_log(log.kept)
        heads = {bucket: read(log.written, bucket) for bucket in buckets}
        for bucket, head in heads.items():
            assert read(log.kept, bucket) == head
        for bucket, reader in readers:
            assert read(log.kept, bucket, reader) == heads[bucket]
    assert compact(spark, log.kept) == log.kept


def check_compacted_log(ops: list[Op]) -> None:
    """A CLEAR is a bucket's first op; a MOVE names a later op and has no data."""
    by_id = {op["op_id"]: op for op in ops}
    assert len(by_id) == len(ops)
    started_buckets = set()
    for op in ops:
        if op["op"] == "CLEAR":
            assert op["bucket"] not in started_buckets
        if op["op"] == "MOVE":
            assert op["superseded_by"] > op["op_id"]
            assert by_id[op["superseded_by"]]["bucket"] == op["bucket"]
            assert {op[name] for name in ("object_type", "object_id", "row_key", "data")} == {None}
        assert 0 <= op["checksum"] < 1 << 32
        started_buckets.add(op["bucket"])
