"""When another worker may claim a chunk: the only decision by a clock (design rule T5)."""

from datetime import datetime, timedelta, timezone

import pytest

from ingest.lake import Chunk
from ingest.lake.source_tables import DONE, QUEUED, RUNNING

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("state", "seconds", "may_be_tried"),
    [(QUEUED, None, True), (RUNNING, 1, False), (RUNNING, -1, True), (DONE, -1, False)],
)
def test_a_chunk_is_claimed_by_others_after_its_lease_expired(
    state: str, seconds: int | None, may_be_tried: bool
) -> None:
    until = None if seconds is None else NOW + timedelta(seconds=seconds)
    chunk = Chunk("shop", "t", "s", 0, 5, None, None, state=state, lease_until=until)
    assert chunk.is_claimable(NOW) is may_be_tried
