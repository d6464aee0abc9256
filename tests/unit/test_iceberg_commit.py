"""Commits that lose races."""

from pyspark.errors import PySparkException

from ingest.lake.iceberg_commit import retry_on_conflict


def test_a_lost_race_is_run_again_however_long_it_took() -> None:
    lost = [PySparkException("Found conflicting files"), PySparkException("CommitFailedException")]

    def work() -> None:
        if lost:
            raise lost.pop()

    retry_on_conflict(work, seconds=0.0)
    assert not lost
