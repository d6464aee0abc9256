"""The Arrow schemas equal those of the raw tables; a table's id names one generation of it."""

import pyarrow as pa
import pytest

from ingest.common.records import EVENTS, SNAPSHOT_ROWS, table_id


def test_events_have_the_columns_of_the_raw_table() -> None:
    assert " ".join(EVENTS.names) == (
        "source writer commit_lsn commit_index change_lsn commit_ts xid op table_name table_id "
        "partition_id row_key old_row_key is_partial columns ingested_at"
    )


def test_snapshot_rows_have_the_columns_of_the_raw_table() -> None:
    assert " ".join(SNAPSHOT_ROWS.names) == (
        "source table_name table_id partition_id snapshot_id chunk attempt snapshot_lsn read_lsn row_key columns "
        "ingested_at"
    )


@pytest.mark.parametrize("schema", [EVENTS, SNAPSHOT_ROWS])
def test_types_are_supported_by_iceberg(schema: pa.Schema) -> None:
    assert schema.field("columns").type == pa.map_(pa.string(), pa.string())
    assert schema.field("ingested_at").type == pa.timestamp("us", tz="UTC")
    assert schema.field("partition_id").type == pa.int64()


def test_a_table_id_is_sixteen_hex_digits_and_stable() -> None:
    assert table_id("shop", 16384, "public.orders", ["id"], "d") == "a8ea24fb1e2fb58e"


def test_a_table_id_changes_with_every_property_of_a_generation() -> None:
    ids = [
        table_id("shop", 16384, "public.orders", ["a", "b"], "d"),
        table_id("shop2", 16384, "public.orders", ["a", "b"], "d"),
        table_id("shop", 16385, "public.orders", ["a", "b"], "d"),
        table_id("shop", "16384", "public.orders", ["a", "b"], "d"),
        table_id("shop", 16384, "public.order", ["a", "b"], "d"),
        table_id("shop", 16384, "public.orders", ["b", "a"], "d"),
        table_id("shop", 16384, "public.orders", ["a,b"], "d"),
        table_id("shop", 16384, "public.orders", [], "d"),
        table_id("shop", 16384, "public.orders", None, "d"),
        table_id("shop", 16384, "public.orders", ["a", "b"], "f"),
    ]
    assert len(set(ids)) == len(ids)
