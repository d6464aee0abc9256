"""From raw events to rows: order, exactly once, tombstones, truncates, snapshots (design rules P, S)."""

from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.harness.core_models import CoreModels

PLACE = "struct<commit_lsn: bigint, change_lsn: bigint, commit_index: int>"
COLUMNS = "map<string, string>"


# Events


EVENT = (
    "source string, writer int, commit_lsn bigint, commit_index int, change_lsn bigint, op string, row_key string, "
    "commit_ts timestamp, xid bigint, table_name string, table_id string, partition_id bigint, old_row_key string, "
    f"is_partial boolean, columns {COLUMNS}"
)


def raw_event(writer: int, commit_lsn: int, commit_index: int, change_lsn: int, name: str) -> tuple[Any, ...]:
    place = (writer, commit_lsn, commit_index, change_lsn)
    return ("shop", *place, "insert", name, None, 7, "public.t", "T", 1, None, False, {})


@pytest.mark.parametrize(
    ("slices", "numbers"),
    [
        ({}, [(0, 1), (0, 2), (0, 3), (0, 4), (0, 5), (0, 6)]),
        ({"shop": [(120, 112), (160, 157), (160, 158)]}, [(0, 1), (0, 2), (1, 1), (1, 2), (2, 1), (3, 1)]),
    ],
    ids=["one slice", "four"],
)
def test_every_raw_event_of_a_range_becomes_one_event_in_log_order(
    spark: SparkSession, slices: dict[str, list[tuple[int, int]]], numbers: list[tuple[int, int]]
) -> None:
    """Writer 1 covers [50, 180) of the log, writer 2 [150, 300); the run reads [100, 200)."""
    core = CoreModels(spark)
    core.macros.ranges = lambda _: [{"source": "shop", "checkpoint_id": 3, "lower": 100, "upper": 200, "since": 2}]
    core.macros.log_slices = lambda *_: slices
    core.view(
        "stream_positions",
        "source string, writer int, start_position bigint, position bigint",
        ("shop", 1, 50, 170),
        ("shop", 1, 50, 180),
        ("shop", 2, 150, 300),
    )
    core.view(
        "wal_events",
        EVENT,
        raw_event(1, 99, 0, 98, "before the range"),
        raw_event(1, 120, 1, 112, "second"),
        raw_event(1, 100, 0, 99, "at its begin"),
        raw_event(1, 120, 0, 111, "first"),
        raw_event(1, 120, 1, 112, "second"),
        raw_event(2, 160, 0, 158, "third of two writers' transaction"),
        raw_event(1, 160, 0, 155, "first of two writers' transaction"),
        raw_event(1, 160, 1, 157, "second of two writers' transaction"),
        raw_event(2, 140, 0, 139, "from before its writer began"),
        raw_event(1, 180, 0, 179, "at the end of what its writer has finished"),
        raw_event(2, 200, 0, 199, "at the end of the range"),
    )
    events = sorted(core.select("events"), key=lambda row: row.seq)
    assert [row.row_key for row in events] == [
        "at its begin",
        "first",
        "second",
        "first of two writers' transaction",
        "second of two writers' transaction",
        "third of two writers' transaction",
    ]
    assert [row.seq for row in events] == [(3 << 37) + (slice_ << 31) + rank for slice_, rank in numbers]
    assert {row.checkpoint_id for row in events} == {3}


# Rows


class Rows:
    """One run of `row_state` over the log in [100, 200) of one table `T` of the source `shop`."""

    def __init__(self, spark: SparkSession) -> None:
        self.core = CoreModels(spark)
        self.core.macros.ranges = lambda _: RANGES
        self.core.macros._in_checkpoints_of_ranges = lambda _: "true"
        self.set_status(("ready", "S", 100))
        self.log()
        self.set_snapshot_rows()
        self.set_row_state()

    def set_status(self, *decisions: tuple[str, str, int], key: tuple[str, ...] | None = ("id",)) -> None:
        """The table's status, snapshot and snapshot LSN in this run, preceded by those of the last run if two are
        given.
        """
        columns = (
            "source string, table_id string, table_name string, checkpoint_id bigint, status string, "
            "snapshot_id string, snapshot_lsn bigint, key_columns array<string>"
        )
        first = 6 - len(decisions)
        rows = [("shop", "T", "public.t", first + n, *decision, key) for n, decision in enumerate(decisions)]
        self.core.view("table_status", columns, *rows)

    def log(self, *events: tuple[Any, ...]) -> None:
        """Sets the events: (commit_lsn, op, row_key, columns), and old_row_key if the key changed. Without `v` an
        update is partial.
        """
        columns = (
            "source string, table_id string, table_name string, row_key string, old_row_key string, op string, "
            f"partition_id bigint, is_partial boolean, columns {COLUMNS}, commit_lsn bigint, change_lsn bigint, "
            "commit_index int, checkpoint_id bigint"
        )
        rows = [
            ("shop", "T", "public.t", key, (*before, None)[0], op, None if op == "truncate" else 1,
             op == "update" and "v" not in values, values, commit_lsn, commit_lsn, n, 5)
            for n, (commit_lsn, op, key, values, *before) in enumerate(events)
        ]  # fmt: skip
        self.core.view("events", columns, *rows)

    def set_snapshot_rows(
        self, *rows: tuple[Any, ...], chunks: tuple[tuple[int, int, str], ...] = ((0, 1, "done"),)
    ) -> None:
        """Sets the rows of snapshot S: (row_key, columns), and (chunk, attempt) unless (0, 1)."""
        columns = (
            "source string, table_id string, table_name string, snapshot_id string, chunk int, attempt int, "
            f"partition_id bigint, read_lsn bigint, row_key string, columns {COLUMNS}"
        )
        self.core.view(
            "snapshot_rows",
            columns,
            *(("shop", "T", "public.t", "S", *((*place, 0, 1)[:2]), 1, 100, k, c) for k, c, *place in rows),
        )
        kinds = "snapshot_id string, chunk int, attempt int, state string, row_keys array<string>"
        self.core.view("snapshot_chunks", kinds, *(("S", *chunk, None) for chunk in chunks))

    def set_row_state(self, *rows: tuple[str, dict[str, str], int]) -> None:
        """Sets the rows before the run: (row_key, columns, multiplicity)."""
        columns = (
            f"source string, table_id string, table_name string, row_key string, columns {COLUMNS}, deleted boolean, "
            "multiplicity int, partition_id bigint, commit_lsn bigint, change_lsn bigint, commit_index int, "
            "checkpoint_id bigint"
        )
        existing = [
            ("shop", "T", "public.t", key, c, not multiplicity, multiplicity, 1, 50, 50, 0, 4)
            for key, c, multiplicity in rows
        ]
        self.core.view("row_state", columns, *existing)

    def run(self) -> dict[str, tuple[dict[str, str], int]]:
        """The columns and multiplicity (0: a tombstone) of the rows that the run writes, by key."""
        rows = self.core.select("row_state")
        assert len({row.row_key for row in rows}) == len(rows)
        assert all(row.deleted is (row.multiplicity == 0) and row.checkpoint_id == 5 for row in rows)
        return {row.row_key: (row["columns"], row.multiplicity) for row in rows}


RANGES = [{"source": "shop", "checkpoint_id": 5, "lower": 100, "upper": 200, "since": 4}]


@pytest.fixture
def table(spark: SparkSession) -> Rows:
    return Rows(spark)


def test_events_win_over_snapshot_rows_and_deletes_leave_tombstones(table: Rows) -> None:
    """The last event of a row wins. A deleted row is kept as a tombstone even if it was never seen, so it stays
    deleted.
    """
    table.set_snapshot_rows(*((key, {"v": "of the snapshot"}) for key in "abc"))
    table.log(
        (100, "update", "a", {"v": "of the log"}),
        (150, "update", "a", {"v": "the last"}),
        (150, "delete", "b", {"v": ""}),
        (150, "delete", "never seen", {"v": ""}),
    )
    assert table.run() == {
        "a": ({"v": "the last"}, 1),
        "b": ({"v": ""}, 0),
        "c": ({"v": "of the snapshot"}, 1),
        "never seen": ({"v": ""}, 0),
    }


def test_only_rows_of_the_attempt_that_is_marked_done_are_read(table: Rows) -> None:
    chunks = ((0, 2, "done"), (1, 1, "running"))
    table.set_snapshot_rows(("a", {"v": "1"}, 0, 2), ("b", {"v": "1"}, 0, 1), ("c", {"v": "1"}, 1, 1), chunks=chunks)
    assert table.run().keys() == {"a"}


def test_a_truncate_deletes_all_rows_ordered_before_it(table: Rows) -> None:
    """Rows of a snapshot, of the log, and of earlier runs become tombstones."""
    table.set_snapshot_rows(("read", {"v": "1"}))
    table.set_row_state(("there", {"v": "1"}, 1))
    table.log(
        (110, "insert", "committed", {"v": "1"}),
        (120, "truncate", None, None),
        (130, "insert", "after", {"v": "1"}),
    )
    assert table.run() == {"after": ({"v": "1"}, 1), "there": ({"v": "1"}, 0)}
    table.set_status(("ready", "S", 10), ("ready", "S", 10))
    assert table.run() == {"after": ({"v": "1"}, 1), "there": ({"v": "1"}, 0)}


def test_a_new_snapshot_replaces_the_rows_of_earlier_runs(table: Rows) -> None:
    """A row that is missing in the snapshot is deleted; an equal row is no change."""
    table.set_row_state(("same", {"v": "1"}, 1), ("other", {"v": "1"}, 1), ("gone", {"v": "1"}, 1))
    table.set_snapshot_rows(("same", {"v": "1"}), ("other", {"v": "2"}))
    table.set_status(("ready", "R", 10), ("ready", "S", 100))
    assert table.run() == {"other": ({"v": "2"}, 1), "gone": ({"v": "1"}, 0)}


def test_all_rows_of_an_ended_generation_are_deleted(table: Rows) -> None:
    table.set_row_state(("a", {"v": "1"}, 1), ("b", {"v": "1"}, 0))
    table.log((150, "insert", "c", {"v": "1"}))
    table.set_status(("ready", "S", 10), ("ended", "S", 10))
    assert table.run() == {"a": ({"v": "1"}, 0)}


def test_a_table_that_is_not_admitted_has_no_rows(table: Rows) -> None:
    table.set_snapshot_rows(("a", {"v": "1"}))
    table.log((150, "insert", "b", {"v": "1"}))
    table.set_status(("waiting", None, None))  # type: ignore[arg-type]
    assert table.run() == {}


def test_a_value_missing_in_an_update_comes_from_the_row_before_it(table: Rows) -> None:
    """From the same run or an earlier one; if the key changed, from the row of the old key."""
    table.set_status(("ready", "S", 10), ("ready", "S", 10))
    table.set_row_state(("a", {"v": "of a", "n": "0"}, 1), ("b", {"v": "of b", "n": "0"}, 1))
    table.log(
        (110, "update", "a", {"n": "1"}),
        (120, "insert", "c", {"v": "of c", "n": "0"}),
        (130, "update", "c", {"n": "2"}),
    )
    assert table.run() == {"a": ({"v": "of a", "n": "1"}, 1), "c": ({"v": "of c", "n": "2"}, 1)}
    table.log((110, "delete", "b", {}), (110, "update", "moved", {"n": "3"}, "b"))
    assert table.run() == {"b": ({}, 0), "moved": ({"v": "of b", "n": "3"}, 1)}


def test_equal_rows_of_a_table_without_a_key_are_counted(table: Rows) -> None:
    equal_columns = {"v": "1"}
    table.set_status(("ready", "S", 10), ("ready", "S", 10), key=None)
    table.set_row_state(("a", equal_columns, 2), ("b", equal_columns, 1))
    table.log(
        (110, "insert", "a", equal_columns),
        (120, "delete", "b", equal_columns),
        (130, "delete", "a", equal_columns),
        (130, "update", "c", equal_columns, "a"),
    )
    assert table.run() == {"a": (equal_columns, 2), "b": (equal_columns, 0), "c": (equal_columns, 1)}
    table.log((110, "truncate", None, None), (120, "insert", "a", equal_columns))
    assert table.run() == {"a": (equal_columns, 1), "b": (equal_columns, 0)}


# Decisions about tables, and checkpoints


def test_a_snapshot_is_admitted_once_the_checkpoint_is_past_its_end(spark: SparkSession) -> None:
    core = CoreModels(spark, is_incremental=False)
    core.view("wal_events", EVENT)
    core.view(
        "source_tables",
        "source string, table_id string, table_name string, state string, snapshot_id string, snapshot_lsn bigint, "
        "complete_lsn bigint, ended_lsn bigint, key_columns array<string>",
        *(
            ("shop", f"{state} {done}", "public.t", state, "S", 10, done, None, ["id"])
            for state, done in (("done", 119), ("done", 120), ("done", 121), ("running", None), ("queued", None))
        ),
    )
    ranges = [{"source": "shop", "checkpoint_id": 5, "lower": 90, "upper": 120, "since": 4}]
    query = core.macros.decide_tables("source_tables", "wal_events", "table_status", ranges)
    statuses = {row.table_id: (row.status, row.snapshot_id) for row in spark.sql(query).collect()}
    waiting = ("waiting", None)
    assert statuses == {
        "done 119": ("ready", "S"),
        **dict.fromkeys(["done 120", "done 121", "running None", "queued None"], waiting),
    }


def test_a_table_that_returns_has_no_rows_until_its_new_snapshot(spark: SparkSession) -> None:
    core = CoreModels(spark)
    columns = "table_id string, status string, snapshot_id string, checkpoint_id bigint"
    decisions = [
        ("returning", "ready", "S1", 3),
        ("returning", "ended", "S1", 4),
        ("returning", "waiting", "S1", 5),
        ("returned", "ended", "S1", 3),
        ("returned", "waiting", "S1", 4),
        ("returned", "ready", "S2", 5),
        ("altered", "ready", "S1", 4),
        ("altered", "waiting", "S1", 5),
        ("gone", "ended", "S1", 3),
        ("gone", "waiting", "S1", 4),
        ("gone again", "ready", "S1", 3),
        ("gone again", "ended", "S1", 5),
        ("gone again", "waiting", "S1", 6),
        ("gone again", "ended", "S1", 7),
    ]
    core.view("decisions", columns, *decisions)
    spark.sql(
        "select *, 'shop' as source, table_id as table_name, array('id') as key_columns, 10L as snapshot_lsn "
        "from decisions"
    ).createOrReplaceTempView("table_status")
    ranges = [{"source": "shop", "checkpoint_id": 7, "lower": 90, "upper": 120, "since": 4}]
    scope = {
        t["table_id"]: (t["is_admitted"], t["is_ended"]) for t in core.macros.tables_in_run("table_status", ranges)
    }
    assert scope == {"returned": (True, False), "altered": (False, False), "gone again": (False, True)}


@pytest.mark.parametrize(
    ("positions", "counting", "moved"),
    [
        pytest.param([(1, 1, 100), (1, 1, 120), (2, 1, 110)], [1, 2], 110, id="the slowest writer"),
        pytest.param([(1, 1, 100), (2, 1, 95)], None, 95, id="all writers, if none are listed"),
        pytest.param([(1, 1, 120), (2, 1, 95)], [1], 120, id="a removed writer does not count"),
        pytest.param([(1, 1, 120)], [1, 2], None, id="none, while a writer has no position"),
        pytest.param([(1, 1, 120), (2, 1, 130), (2, 105, 107)], [1, 2], 107, id="the newest epoch"),
        pytest.param([(1, 1, 90), (2, 1, 120)], [1, 2], None, id="an epoch without progress"),
    ],
)
def test_the_checkpoint_is_the_minimum_position_of_the_writers(
    spark: SparkSession, positions: list[tuple[int, int, int]], counting: list[int] | None, moved: int | None
) -> None:
    """positions: (writer, start_position, position). The last checkpoint was at 90."""
    core = CoreModels(spark)
    columns = "source string, writer int, start_position bigint, position bigint"
    core.view("stored", columns, *(("shop", *position) for position in positions))
    core.view("sources", "source string, snapshot_hold string, writers array<int>", ("shop", "definition", counting))
    raw = {"positions": "stored", "sources": "sources", "tables": "none"}
    checkpoint = core.macros.advanced_sources(raw, {"shop": {"checkpoint_id": 4, "position": 90}})
    assert checkpoint == ({} if moved is None else {"shop": moved})
