import pytest

from ingest.positions.writer_lag import PositionSample, UnreachedChanges, lag_seconds

NOW = 1000.0


@pytest.mark.parametrize(
    ("stored", "landed", "done", "held"),
    [
        ([(1, 50, 400)], {}, [], {1: 0}),
        ([(1, 50, 400), (2, 50, 900)], {}, [], {1: 0, 2: 0}),
        # Both go on: the one that is behind has just been overtaken.
        ([(1, 50, 400), (1, 60, 999), (2, 55, 998)], {}, [], {1: 0, 2: 1}),
        # Nobody runs writer 2; nothing is landed.
        ([(1, 50, 400), (1, 60, 700), (1, 70, 990), (2, 55, 600)], {}, [], {1: 0, 2: 300}),
        # The same, when what writer 1 stored before is forgotten.
        ([(1, 70, 990), (2, 55, 600)], {}, [], {1: 0, 2: 400}),
        # The log stood still for long before.
        ([(1, 55, 100), (1, 60, 998), (2, 55, 100)], {}, [], {1: 0, 2: 2}),
        # Others have landed a change.
        ([(1, 50, 400), (1, 60, 990), (2, 50, 600)], {2: UnreachedChanges(750, 980)}, [], {1: 0, 2: 250}),
        # It stores each second, an hour late.
        ([(1, 9000, 999), (2, 50, 999)], {2: UnreachedChanges(-2700, 900)}, [], {1: 0, 2: 3600}),
        # All are late.
        ([(1, 51, 999), (2, 50, 999)], {2: UnreachedChanges(-2700, -2699)}, [], {1: 0, 2: 1}),
        # Snapshots are read that end behind it: at 50 it is not past 50.
        ([(1, 50, 400), (2, 50, 400)], {}, [(50, 700), (40, 300)], {1: 300, 2: 300}),
    ],
)
def test_a_writer_holds_back_what_others_have_since_they_had_it(
    stored: list[tuple[int, int, float]],
    landed: dict[int, UnreachedChanges],
    done: list[tuple[int, float]],
    held: dict[int, int],
) -> None:
    assert lag_seconds(NOW, [PositionSample(*row) for row in stored], landed, done) == held
