"""When a stream writer commits its open batch, as a table of cases (design rules T4, W5)."""

from typing import Any

import pytest
from pydantic import ByteSize

from ingest.config.job_settings import JobSettings
from ingest.stream.flush_policy import FlushState, should_flush

SETTINGS = JobSettings(commit_max_bytes=ByteSize(1_048_576), commit_interval_seconds=1.0, idle_position_seconds=5.0)
EMPTY = FlushState(
    size=0,
    age=0.0,
    has_advanced=False,
    crosses_target=False,
    is_position_requested=False,
    is_commit_requested=False,
    position_age=0.0,
    is_committer_idle=True,
)
SMALL = {"size": 10, "age": 0.5, "has_advanced": True}
FULL = {"size": 1_048_576, "age": 0.5}
ADVANCED = {"has_advanced": True}
BUSY = {"is_committer_idle": False}
REQUESTED = {"is_commit_requested": True}


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        pytest.param({}, False, id="nothing was read"),
        # A batch with events.
        pytest.param(SMALL, False, id="small and young"),
        pytest.param({**SMALL, "age": 1.0}, True, id="small and old"),
        pytest.param({**SMALL, "crosses_target": True}, True, id="small, and the target is reached"),
        pytest.param(
            {**SMALL, "is_position_requested": True, "position_age": 9.0}, False, id="the position waits for the batch"
        ),
        pytest.param({**SMALL, "has_advanced": False, "age": 1.0}, True, id="old, of an unfinished transaction"),
        pytest.param({**SMALL, **BUSY, "age": 9.0}, False, id="old, but the committer is busy"),
        pytest.param(
            {**SMALL, **BUSY, "crosses_target": True}, False, id="the target is reached, the committer is busy"
        ),
        pytest.param({**SMALL, **REQUESTED}, True, id="small, and a run begins"),
        pytest.param({**SMALL, **REQUESTED, "age": 0.05}, False, id="very young, and a run begins"),
        pytest.param({**SMALL, **REQUESTED, **BUSY}, False, id="a run begins, and the committer is busy"),
        pytest.param(FULL, True, id="full"),
        pytest.param({**FULL, **BUSY}, True, id="full, and the committer is busy"),
        pytest.param({**FULL, "size": 1_048_575}, False, id="almost full"),
        # A position without events.
        pytest.param({**ADVANCED, **REQUESTED}, False, id="the last position is young, and a run begins"),
        pytest.param(ADVANCED, False, id="the last position is young"),
        pytest.param({**ADVANCED, "position_age": 5.0}, True, id="the last position is old"),
        pytest.param({**ADVANCED, "is_position_requested": True}, True, id="the source asks for a status"),
        pytest.param({**ADVANCED, "crosses_target": True}, True, id="the target is reached without events"),
        pytest.param({**ADVANCED, **BUSY, "position_age": 9.0}, False, id="the position is old, the committer is busy"),
        pytest.param({"is_position_requested": True, "position_age": 9.0}, False, id="the position is the last one"),
    ],
)
def test_a_batch_is_committed_by_size_age_and_position(state: dict[str, Any], expected: bool) -> None:
    assert should_flush(FlushState(**{**vars(EMPTY), **state}), SETTINGS) is expected
