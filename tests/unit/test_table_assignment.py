from ingest.sources.postgres.catalog.publications import assigned_writer

NAMES = [f"public.table_{number}" for number in range(1000)]


def test_a_table_is_assigned_to_the_same_writer_in_every_process() -> None:
    assert [assigned_writer(f"public.{name}", [1, 2, 3]) for name in "abc"] == [1, 3, 2]
    assert all(assigned_writer(name, [1, 2, 3]) == assigned_writer(name, [3, 1, 2]) for name in NAMES)


def test_tables_are_spread_evenly_over_the_writers() -> None:
    assigned = [assigned_writer(name, range(1, 5)) for name in NAMES]
    assert all(200 < assigned.count(writer) < 300 for writer in range(1, 5))


def test_an_added_writer_takes_tables_and_moves_no_others() -> None:
    for name in NAMES:
        assert assigned_writer(name, [1, 2, 3]) in (assigned_writer(name, [1, 2]), 3)
