import pytest

from ingest.sources.postgres.writers.table_assignment import shares


@pytest.mark.parametrize(
    ("owners", "writers", "moves"),
    [
        ({}, [1, 2], {}),
        ({"a": 1}, [1, 2], {}),  # one stays without
        ({"a": 1, "b": 1}, [1, 2], {"b": 2}),
        ({"a": 1, "b": 1, "c": 1, "d": 1, "e": 1}, [1, 2, 3], {"e": 2, "d": 3, "c": 2}),
        ({"a": 1, "b": 2, "c": 3}, [1], {"b": 1, "c": 1}),
        ({"a": 1, "b": 2, "c": 3, "d": 3}, [1, 2], {"c": 1, "d": 2}),
        ({"a": 1, "b": 1, "c": 1, "d": 2}, [1, 2], {}),  # a person may mean it
    ],
)
def test_tables_are_shared_out(owners: dict[str, int], writers: list[int], moves: dict[str, int]) -> None:
    assert shares(owners, writers) == moves
    after = {**owners, **moves}
    assert set(after.values()) <= set(writers)
    assert shares(after, writers) == {}
