"""The demo's comparison of lake and source: it reports every difference, and no others."""

from datetime import datetime, timezone
from decimal import Decimal

import pyarrow as pa
import pytest

from ingest.demo.compare import checksum, count_wrong, describe_difference, parse_csv

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("price", pa.decimal128(5, 2)),
        ("size", pa.float64()),
    ]
)
ROWS = b'1,"a ""quoted"", name",2013-01-01 10:00:00+00,1.50,0.1\n2,"",,,\n3,,2013-01-01 10:00:00.25+00,,-1e+20\n'


def test_copy_in_csv_is_parsed_as_the_lakes_types() -> None:
    ten = datetime(2013, 1, 1, 10, tzinfo=timezone.utc)
    assert parse_csv(ROWS, SCHEMA).to_pylist() == [
        {"id": 1, "name": 'a "quoted", name', "at": ten, "price": Decimal("1.50"), "size": 0.1},
        {"id": 2, "name": "", "at": None, "price": None, "size": None},
        {
            "id": 3,
            "name": None,
            "at": ten.replace(microsecond=250_000),
            "price": None,
            "size": -1e20,
        },
    ]


def test_no_rows_are_an_empty_table() -> None:
    assert parse_csv(b"", SCHEMA).num_rows == 0


def test_the_order_of_rows_makes_no_difference() -> None:
    table = parse_csv(ROWS, SCHEMA)
    assert describe_difference(table, table.take([2, 0, 1]), ["id"]) == ""


@pytest.mark.parametrize(
    ("other", "extra", "missing"),
    [
        (ROWS.replace(b'2,"",', b"2,,"), 1, 1),
        (ROWS.replace(b"1.50", b"1.51"), 1, 1),
        (ROWS + b"4,,,,\n", 0, 1),
        (ROWS + b"3,,2013-01-01 10:00:00.25+00,,-1e+20\n", 0, 1),
        (b"", 3, 0),
    ],
    ids=["null for empty", "a value", "a row more", "a row twice", "no rows"],
)
def test_a_difference_is_counted_and_shown(other: bytes, extra: int, missing: int) -> None:
    text = describe_difference(parse_csv(ROWS, SCHEMA), parse_csv(other, SCHEMA), ["id"])
    assert text.startswith(f"{extra} rows are in the lake only, {missing} in the source only")


def test_an_op_with_another_checksum_is_counted() -> None:
    put = ("PUT", "flight", "1", '["1"]', '{"id":1}')
    remove = ("REMOVE", "flight", "1", '["1"]', None)
    names = ["op", "object_type", "object_id", "row_key", "data", "checksum"]
    rows = [(*put, checksum(*put)), (*remove, checksum(*remove)), (*remove, 1)]
    batch = pa.RecordBatch.from_pylist([dict(zip(names, row, strict=True)) for row in rows])
    assert [b.to_pylist() for b in count_wrong([batch])] == [[{"ops": 3, "wrong": 1}]]


def test_a_checksum_is_the_first_bytes_of_the_hash_little_endian() -> None:
    # printf 'put.flight.1.{"id":1}' | sha256sum
    assert checksum("PUT", "flight", "1", '["1"]', '{"id":1}') == int.from_bytes(bytes.fromhex("b0dd613c"), "little")
