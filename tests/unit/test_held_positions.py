import pytest

from ingest.positions.held_positions import PositionSample, UnreachedChanges, held_seconds

NOW = 1000.0


@pytest.mark.parametrize(
    ("stored", "unreached", "done", "expected"),
    [
        ([(1, 50, 400)], {}, [], {1: 0}),
        ([(1, 50, 400), (2, 50, 900)], {}, [], {1: 0, 2: 0}),
        # Both writers advance: the later one has just been overtaken.
        ([(1, 50, 400), (1, 60, 999), (2, 55, 998)], {}, [], {1: 0, 2: 1}),
        # No process runs writer 2; there are no new changes.
        ([(1, 50, 400), (1, 60, 700), (1, 70, 990), (2, 55, 600)], {}, [], {1: 0, 2: 300}),
        # The same after writer 1's earlier positions were expired.
        ([(1, 70, 990), (2, 55, 600)], {}, [], {1: 0, 2: 400}),
        # The log had no changes for a long time before.
        ([(1, 55, 100), (1, 60, 998), (2, 55, 100)], {}, [], {1: 0, 2: 2}),
        # Others have committed a change.
        ([(1, 50, 400), (1, 60, 990), (2, 50, 600)], {2: UnreachedChanges(750, 980)}, [], {1: 0, 2: 250}),
        # The writer stores its position each second, an hour late.
        ([(1, 9000, 999), (2, 50, 999)], {2: UnreachedChanges(-2700, 900)}, [], {1: 0, 2: 3600}),
        # All writers are late.
        ([(1, 51, 999), (2, 50, 999)], {2: UnreachedChanges(-2700, -2699)}, [], {1: 0, 2: 1}),
        # Snapshots end behind the writer: at 50 it is not past 50.
        ([(1, 50, 400), (2, 50, 400)], {}, [(50, 700), (40, 300)], {1: 300, 2: 300}),
    ],
)
def test_a_writer_delays_changes_of_others_since_their_commit(
    stored: list[tuple[int, int, float]],
    unreached: dict[int, UnreachedChanges],
    done: list[tuple[int, float]],
    expected: dict[int, int],
) -> None:
    assert held_seconds(NOW, [PositionSample(*row) for row in stored], unreached, done) == expected
