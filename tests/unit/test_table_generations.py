"""What a read of the catalog means: which snapshots are due, which generations have gone."""

from dataclasses import replace

import pytest

from ingest.lake.source_tables import DONE, ENDED, QUEUED, RUNNING, Column, Partition, SourceTable
from ingest.sources.postgres.schema_tracking.resnapshot_rules import CatalogState
from ingest.sources.postgres.schema_tracking.table_generations import find_ended_tables, mark_unlogged, reconcile

ID, NAME = Column("id", 1, "integer"), Column("name", 2, "text")
PARTITION = Partition(500, "public.orders", 900)
ORDERS = SourceTable(
    source="shop",
    table_id="a" * 16,
    table_name="public.orders",
    relation_id=500,
    replica_identity="d",
    key_columns=("id",),
    columns=(ID, NAME),
    partitions=(PARTITION,),
    attributes=2,
    published_id=77,
)
TAKEN = replace(ORDERS, state=DONE, snapshot_id="s", snapshot_lsn=10, complete_lsn=20, row_count=1, rev=3)


def known(*tables: SourceTable) -> dict[str, SourceTable]:
    return {table.table_id: table for table in tables}


def test_a_new_table_is_registered_with_its_snapshot_queued() -> None:
    assert reconcile([CatalogState(ORDERS)], {}) == [ORDERS]
    assert ORDERS.state == QUEUED


def test_a_table_that_is_not_published_is_left_as_it_was() -> None:
    assert reconcile([CatalogState(ORDERS, published=False)], {}) == []
    assert reconcile([CatalogState(ORDERS, published=False)], known(TAKEN)) == []


def test_a_duplicated_table_gets_one_new_snapshot() -> None:
    doubled = CatalogState(ORDERS, published=False, published_twice=True)
    (row,) = reconcile([doubled], known(TAKEN))
    assert row.state == QUEUED
    assert row.partitions == TAKEN.partitions
    assert reconcile([doubled], known(row)) == []
    assert reconcile([doubled], known(replace(TAKEN, state=ENDED))) == []
    assert reconcile([doubled], {}) == []


def test_an_unchanged_table_needs_nothing() -> None:
    assert reconcile([CatalogState(ORDERS)], known(TAKEN)) == []


def test_a_table_that_was_moved_to_another_writer_needs_no_new_snapshot() -> None:
    moved = replace(TAKEN, published_id=78, writer=2, rev=4)
    assert reconcile([CatalogState(replace(ORDERS, published_id=78, writer=2))], known(moved)) == []
    (not_committed,) = reconcile([CatalogState(ORDERS)], known(moved))
    assert (not_committed.state, not_committed.writer) == (QUEUED, 1)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"columns": (ID, replace(NAME, name="title"))}, "column name was renamed"),
        ({"columns": (replace(ID, type="bigint"), NAME)}, "column id was of type integer"),
        ({"columns": (ID, replace(NAME, attnum=3)), "attributes": 3}, "dropped and added again"),
        ({"published_id": 78}, "taken out of its publication"),
        ({"published_id": 5 << 32 | 78}, "taken out of its publication"),
        ({"partitions": ()}, "partition public.orders was detached or dropped"),
        ({"partitions": (PARTITION, Partition(501, "public.p", 901))}, "partition public.p was attached"),
    ],
)
def test_a_change_that_makes_the_lake_differ_queues_a_snapshot(change: dict[str, object], why: str) -> None:
    (row,) = reconcile([CatalogState(replace(ORDERS, **change))], known(TAKEN))  # type: ignore[arg-type]
    assert (row.state, row.rev, row.snapshot_id, row.complete_lsn) == (QUEUED, 4, None, None)
    assert why in str(row.note)


ADDED = replace(ORDERS, columns=(ID, NAME, Column("more", 3, "text")), attributes=3)
REWRITTEN = (replace(PARTITION, storage=901),)


@pytest.mark.parametrize(
    ("seen", "state"),
    [
        (CatalogState(ADDED), DONE),
        (CatalogState(ADDED, columns_with_default=frozenset([3])), QUEUED),
        (CatalogState(replace(ADDED, partitions=REWRITTEN)), QUEUED),
        (CatalogState(replace(ORDERS, columns=(ID,))), DONE),
        (CatalogState(replace(ORDERS, partitions=REWRITTEN)), DONE),
        (CatalogState(replace(ORDERS, columns=(ID, replace(NAME, type="character varying(9)")))), DONE),
        (
            CatalogState(
                replace(ORDERS, partitions=(PARTITION, Partition(501, "p", 901))), empty_partitions=frozenset([501])
            ),
            DONE,
        ),
    ],
)
def test_a_change_that_no_row_shows_needs_no_snapshot(seen: CatalogState, state: str) -> None:
    (row,) = reconcile([seen], known(TAKEN))
    assert row.state == state
    assert (row.columns, row.partitions) == (seen.row.columns, seen.row.partitions)
    assert row.rev == TAKEN.rev + 1


def test_a_newly_published_column_has_values() -> None:
    before = replace(TAKEN, attributes=3)
    (row,) = reconcile([CatalogState(ADDED)], known(before))
    assert row.state == QUEUED


USING = replace(ORDERS, columns=(ID, replace(NAME, altered=8)))
OLDER = replace(TAKEN, columns=(ID, replace(NAME, altered=7)))


@pytest.mark.parametrize(
    ("now", "before", "state"),
    [
        (replace(USING, partitions=REWRITTEN), OLDER, QUEUED),
        (USING, OLDER, DONE),
        (replace(ORDERS, columns=OLDER.columns, partitions=REWRITTEN), OLDER, DONE),
        (replace(USING, partitions=REWRITTEN), TAKEN, DONE),
    ],
    ids=["altered and rewritten", "altered", "rewritten", "registered by an older version"],
)
def test_a_column_that_was_altered_with_a_rewrite_has_other_values(
    now: SourceTable, before: SourceTable, state: str
) -> None:
    (row,) = reconcile([CatalogState(now)], known(before))
    assert row.state == state
    assert (row.columns, row.partitions) == (now.columns, now.partitions)


def attached(*transactions: str | None) -> list[SourceTable]:
    """`TAKEN` with a partition attached by each of these."""
    return [replace(TAKEN, partitions=(replace(PARTITION, attached=transaction),)) for transaction in transactions]


def test_a_partition_that_was_detached_for_a_while_needs_a_snapshot() -> None:
    before, now = attached("3 4", "3 5")
    (row,) = reconcile([CatalogState(now, empty_partitions=frozenset([PARTITION.partition_id]))], known(before))
    assert (row.state, row.partitions) == (QUEUED, now.partitions)
    assert row.note == "partition public.orders was detached and attached again"


def test_the_time_of_an_attachment_is_read_from_an_older_lake() -> None:
    before, now = attached(None, "3 5")
    (row,) = reconcile([CatalogState(now)], known(before))
    assert (row.state, row.partitions) == (DONE, now.partitions)


def test_an_unlogged_table_gets_a_snapshot_once_it_is_logged() -> None:
    (marked,) = mark_unlogged([TAKEN.table_id, "never registered"], known(TAKEN))
    assert marked == replace(TAKEN, unlogged=True, rev=4)
    assert mark_unlogged([TAKEN.table_id], known(marked)) == []
    (row,) = reconcile([CatalogState(ORDERS)], known(marked))
    assert (row.state, row.unlogged) == (QUEUED, None)
    assert reconcile([CatalogState(ORDERS)], known(row)) == []


def test_the_snapshot_of_a_table_that_became_unlogged_restarts() -> None:
    (row,) = mark_unlogged([TAKEN.table_id], known(replace(TAKEN, state=RUNNING)))
    assert (row.state, row.unlogged) == (QUEUED, None)
    assert mark_unlogged([TAKEN.table_id], known(row)) == []
    assert mark_unlogged([TAKEN.table_id], known(replace(TAKEN, state=ENDED))) == []


def test_a_running_snapshot_continues_if_nothing_has_to_change() -> None:
    running = replace(TAKEN, state=RUNNING, complete_lsn=None)
    assert reconcile([CatalogState(replace(ORDERS, partitions=REWRITTEN))], known(running)) == []


def test_a_generation_that_returns_gets_a_new_snapshot() -> None:
    (row,) = reconcile([CatalogState(ORDERS)], known(replace(TAKEN, state=ENDED, ended_lsn=30)))
    assert (row.state, row.ended_lsn, row.note) == (QUEUED, None, "it exists again")


OTHER = replace(ORDERS, table_id="b" * 16, key_columns=("name",))


def test_a_dropped_table_has_ended() -> None:
    assert find_ended_tables([], known(TAKEN)) == [TAKEN]
    assert find_ended_tables([], known(replace(TAKEN, state=ENDED))) == []


def test_a_generation_ends_when_its_successor_is_registered() -> None:
    present = [(OTHER.table_id, OTHER.relation_id, OTHER.table_name)]
    assert find_ended_tables(present, known(TAKEN, OTHER)) == [TAKEN]


def test_a_table_that_became_unusable_is_kept_as_it_was() -> None:
    assert find_ended_tables([(OTHER.table_id, 500, "public.orders")], known(TAKEN)) == []
    assert find_ended_tables([(TAKEN.table_id, 500, "public.orders")], known(TAKEN)) == []


def test_a_table_renamed_and_made_unusable_has_ended() -> None:
    assert find_ended_tables([(OTHER.table_id, 500, "public.orders_old")], known(TAKEN)) == [TAKEN]


def test_a_column_added_after_an_unseen_one_may_have_its_values() -> None:
    later = replace(ORDERS, columns=(ID, NAME, Column("more", 4, "integer")), attributes=4)
    (row,) = reconcile([CatalogState(later, dropped_attnums=frozenset({3}))], known(TAKEN))
    assert row.state == QUEUED
    assert row.note == "column more was added after one that was dropped again, which may have had its name"
    (row,) = reconcile([CatalogState(later, dropped_attnums=frozenset({3}))], known(replace(TAKEN, attributes=3)))
    assert row.state == DONE


def test_an_ended_generation_takes_no_place() -> None:
    ended = replace(ORDERS, table_id="b" * 16, replica_identity="f", state=ENDED)
    assert find_ended_tables([(ended.table_id, 500, "public.orders")], known(TAKEN, ended)) == []
    assert find_ended_tables([(ended.table_id, 500, "public.orders")], known(TAKEN, replace(ended, state=DONE))) == [
        TAKEN
    ]
