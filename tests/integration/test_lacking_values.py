"""Rows whose values are missing after a snapshot read at several positions (design rule S8)."""

import uuid
from typing import Any

import pyarrow as pa

from ingest.common.records import EVENTS as EVENTS_SCHEMA
from ingest.common.records import SNAPSHOT_ROWS as SNAPSHOT_ROWS_SCHEMA
from ingest.lake import Chunk, Lake, SourceTable
from ingest.lake.incomplete_rows import find_incomplete_rows
from ingest.lake.raw_schema import EVENTS, SNAPSHOT_ROWS
from ingest.lake.source_tables import DONE, RUNNING


def rows(schema: pa.Schema, same: dict[str, Any], *rows: dict[str, Any]) -> pa.Table:
    nothing: dict[str, Any] = dict.fromkeys(schema.names)
    return pa.Table.from_pylist([{**nothing, **same, **row} for row in rows], schema=schema)


def test_rows_with_missing_values_and_no_base_row_are_read_again(lake: Lake) -> None:
    """A row of a chunk that is marked done is complete, and an event with all values; a delete is not."""
    name = f"s{uuid.uuid4().hex[:12]}"
    table = SourceTable(
        name, f"{name}-t", "public.t", 5, "d", ("id",), (), (), state=RUNNING, snapshot_id=name, snapshot_lsn=100
    )
    states = [(0, 1, DONE, None), (1, 1, RUNNING, None), (2, 1, DONE, ("asked before", "asked after"))]
    lake.chunks.insert(
        [
            Chunk(name, table.table_id, name, n, 5, None, None, keys, attempt=attempt, state=state, read_lsn=120)
            for n, attempt, state, keys in states
        ]
    )
    snapshot = {"source": name, "table_id": table.table_id, "snapshot_id": name, "attempt": 1, "partition_id": 5}
    read = [{"chunk": 0, "row_key": "read"}, {"chunk": 0, "row_key": "moved"}, {"chunk": 1, "row_key": "of no chunk"}]
    lake.append(SNAPSHOT_ROWS, rows(SNAPSHOT_ROWS_SCHEMA, snapshot, *read))
    event = {
        "source": name,
        "writer": 1,
        "table_id": table.table_id,
        "partition_id": 5,
        "commit_index": 0,
        "is_partial": True,
    }
    log = [
        (110, "update", "read", None, True),
        (110, "update", "of no chunk", None, True),
        (110, "update", "never read", None, True),
        (110, "insert", "inserted", None, False),
        (115, "update", "inserted", None, True),
        (110, "delete", "deleted", None, False),
        (115, "update", "deleted", None, True),
        (110, "update", "moved", "before", True),
        (110, "update", "asked after", None, True),
        (130, "update", "asked before", None, True),
        (90, "update", "before the snapshot", None, True),
        (150, "update", "not committed by all", None, True),
    ]
    records = [
        {
            "commit_lsn": commit_lsn,
            "change_lsn": commit_lsn,
            "op": op,
            "row_key": key,
            "old_row_key": before,
            "is_partial": is_partial,
        }
        for commit_lsn, op, key, before, is_partial in log
    ]
    lake.append(EVENTS, rows(EVENTS_SCHEMA, event, *records))
    expected = ["asked before", "deleted", "moved", "never read", "of no chunk"]
    assert find_incomplete_rows(lake.spark, table, 150, 100) == [(5, key) for key in expected]
    assert find_incomplete_rows(lake.spark, table, 150, 2) == [(5, key) for key in expected[:2]]
