"""Retries of conflicting commits."""

from pyspark.errors import PySparkException

from ingest.lake.iceberg_commit import retry_on_conflict


def test_a_conflicting_commit_is_retried_whatever_its_duration() -> None:
    lost = [PySparkException("Found conflicting files"), PySparkException("CommitFailedException")]

    def work() -> None:
        if lost:
            raise lost.pop()

    retry_on_conflict(work, seconds=0.0)
    assert not lost
