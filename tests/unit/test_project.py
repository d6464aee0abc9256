"""What is told of a project that is wrong, and of a node that failed."""

from pathlib import Path

import pytest

from ingest.errors import Failure
from ingest.project import Project, first_line

_OF_ICEBERG = """Runtime Error in model totals (models/buckets/totals.sql)
  An error occurred while calling o78.sql.
  : org.apache.iceberg.exceptions.CommitFailedException: Table metadata refresh is required
  \tat org.apache.iceberg.BaseTransaction$TransactionTableOperations.commit(BaseTransaction.java:476)"""
_OF_SPARK = """Database Error in model totals (models/buckets/totals.sql)
  [TABLE_OR_VIEW_NOT_FOUND] The table or view `x` cannot be found. SQLSTATE: 42P01; line 1 pos 14;
  'Project [*]"""


@pytest.mark.parametrize(
    ("message", "line"),
    [
        (_OF_ICEBERG, "org.apache.iceberg.exceptions.CommitFailedException: Table metadata refresh is required"),
        (_OF_SPARK, "[TABLE_OR_VIEW_NOT_FOUND] The table or view `x` cannot be found. SQLSTATE: 42P01; line 1 pos 14;"),
        ("Got 2 results, configured to fail if != 0", "Got 2 results, configured to fail if != 0"),
        ("", ""),
    ],
)
def test_the_line_that_says_what_happened_is_told(message: str, line: str) -> None:
    assert first_line(message) == line


@pytest.mark.parametrize("text", [b"", b"- a list", b"model-paths: 5", b"a: [", b"\xff\xfe"])
def test_settings_that_are_none_are_told_of(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "dbt_project.yml").write_bytes(text)
    with pytest.raises(Failure, match=r"the dbt project can't be parsed: dbt_project\.yml"):
        Project(folder=tmp_path)
