"""Rows that are too large for Spark's heap are refused by name, whichever part of them is large."""

from concurrent.futures import Future
from pathlib import Path

import pyarrow as pa
import pytest

from ingest.common.errors import Failure
from ingest.common.records import EVENTS, SNAPSHOT_ROWS
from ingest.lake.parquet_files import BackgroundSink, Folder, Sink
from ingest.lake.row_size_limit import check_row_sizes, largest_row

SMALL = {"source": "shop", "table_name": "public.t", "row_key": '["1"]', "columns": [("a", "x"), ("b", None)]}
TRUNCATE = {"source": "shop", "table_name": "public.t"}


def large(**values: object) -> dict[str, object]:
    return {"source": "shop", "table_name": "public.o'd", "row_key": '["2"]', **values}


@pytest.mark.parametrize(
    "row",
    [
        large(columns=[("a", "x" * 101)]),
        large(columns=[("a", "x" * 60), ("n", None), ("b", "y" * 60)]),
        large(columns=[("a", "é" * 55)]),
        large(row_key="k" * 101),
        large(row_key="k" * 60, old_row_key="p" * 60),
    ],
)
def test_a_row_that_is_too_large_is_reported(row: dict[str, object]) -> None:
    rows = pa.Table.from_pylist([SMALL, TRUNCATE, row, SMALL], EVENTS)
    for table in (rows, pa.concat_tables([rows.slice(0, 1), rows.slice(2)])):
        with pytest.raises(Failure, match=r"source shop, table public\.o'd, key (\[\"2\"\]|k+)\. ") as failure:
            check_row_sizes(table, 100)
        assert "TIDEMARK_DRIVER_MEMORY" in str(failure.value)
        assert '"!public.o\'d"' in str(failure.value)


def test_many_rows_together_can_be_larger() -> None:
    rows = pa.Table.from_pylist([SMALL, large(columns=[("a", "x" * 90)]), TRUNCATE] * 100, EVENTS)
    assert rows.nbytes > 1000
    check_row_sizes(rows, 100)
    check_row_sizes(rows.slice(1, 1), 100)


def test_a_key_is_shown_shortened() -> None:
    with pytest.raises(Failure) as failure:
        check_row_sizes(pa.Table.from_pylist([large(row_key="k" * 10_000)], EVENTS), 100)
    assert len(str(failure.value)) < 500


@pytest.mark.parametrize("schema", [EVENTS, SNAPSHOT_ROWS])
@pytest.mark.parametrize("kind", [Sink, BackgroundSink])
def test_a_sink_refuses_rows_larger_than_its_folder_permits(
    tmp_path: Path, kind: type[Sink] | type[BackgroundSink], schema: pa.Schema
) -> None:
    folder = Folder(str(tmp_path), 1000).subfolder("part")
    sink = kind(folder, schema)
    with pytest.raises(Failure, match="a row of 0 MiB is larger"):  # noqa: PT012  # either call may raise
        sink.write(pa.Table.from_pylist([large(columns=[("a", "x" * 2000)])], schema))
        closed = sink.close()
        if isinstance(closed, Future):
            closed.result()
    sink.discard()
    assert not list((tmp_path / "part").iterdir())


def test_the_limit_follows_from_the_heap_size() -> None:
    heaps = [1 << 30, 2 << 30, 4 << 30]
    limits = [largest_row(heap) for heap in heaps]
    assert all(0 < limits < heap / 10 for limits, heap in zip(limits, heaps, strict=True))
    assert limits == sorted(limits)
    assert largest_row(1) == 0
