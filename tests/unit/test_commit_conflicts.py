"""Conflicts with another commit, which can be retried, are distinguished from permanent errors."""

import pytest

from ingest.project.dbt_project import ConcurrentPublishError, _make_failure


@pytest.mark.parametrize(
    ("message", "is_overtaken"),
    [
        ("org.apache.iceberg.exceptions.ValidationException: Cannot commit, missing data files: [a.parquet]", True),
        ("ValidationException: Found conflicting files that can contain records matching true: [a.parquet]", True),
        ("UncheckedSQLException: Failed to update table; [SQLITE_BUSY] database is locked", True),
        ("UncheckedSQLException: Failed to update table; [SQLITE_FULL] database or disk is full", False),
        ("UncheckedSQLException: Failed to execute: INSERT INTO iceberg_namespace_properties (a) VALUES (?)", True),
        ("ValidationException: Cannot find source column: total", False),
        ("[UNRESOLVED_COLUMN] a column cannot be resolved", False),
    ],
)
def test_a_conflict_with_another_commit_can_be_retried(message: str, is_overtaken: bool) -> None:
    assert (
        isinstance(_make_failure(message, message, "macro prune", lake="/lake"), ConcurrentPublishError) == is_overtaken
    )
