"""Without soft deletes, the snapshots of a source come first and alone (design rule S5)."""

from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import SecretStr

from ingest.common.records import EVENTS, EventBatch
from ingest.config.job_settings import JobSettings
from ingest.config.sources_file import MongoSource
from ingest.lake.source_tables import DONE, RUNNING, SourceTable
from ingest.positions.position import Position
from ingest.sources.interface.source_jobs import SourceJobs, Stream
from ingest.stream.batch_committer import CommitHooks

ORDERS = SourceTable("shop", "t", "shop.orders", 5, "d", ("_id",), (), (), state=RUNNING)


class Feed:
    """Always has a batch. All other methods do nothing."""

    batch = EventBatch(EVENTS.empty_table(), 7)

    def read(self, _: float) -> EventBatch:
        return self.batch

    def __getattr__(self, _: str) -> Any:
        return lambda *_: None


@pytest.mark.parametrize("soft_deletes", [True, False])
def test_without_soft_deletes_a_stream_waits_for_pending_snapshots(
    soft_deletes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ingest.stream.snapshot_first_feed.POLL_SECONDS", 0.0)
    tables = {"t": ORDERS}
    lake: Any = SimpleNamespace(tables=SimpleNamespace(read=lambda _: tables))
    source = MongoSource(
        name="shop", uri=SecretStr("mongodb://host/?replicaSet=rs"), collections=("shop.*",), soft_deletes=soft_deletes
    )
    nothing: Any = Feed()
    jobs = SourceJobs(lake, source, JobSettings(), [], nothing, lambda: 0)
    stream = Stream(Position("shop", 1, "slot", "1", 1, 0, 0), lambda _: nothing)
    writer = jobs.writer(stream, CommitHooks(), None)
    assert (writer._feed.read(0) is None) is not soft_deletes
    assert jobs.snapshotter()._stream_waits is not soft_deletes
    tables["t"] = ORDERS.with_changes(state=DONE)
    assert writer._feed.read(0) is Feed.batch
