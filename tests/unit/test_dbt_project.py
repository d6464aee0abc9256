"""Errors of an invalid project and of a failed node."""

import logging
from pathlib import Path

import pytest

from ingest.common.errors import Failure, Unavailable, first_message_line
from ingest.project.dbt_project import MESSAGE_LENGTH, Project, _make_failure, _shorten

_OF_ICEBERG = """Runtime Error in model totals (models/buckets/totals.sql)
  An error occurred while calling o78.sql.
  : org.apache.iceberg.exceptions.CommitFailedException: Table metadata refresh is required
  \tat org.apache.iceberg.BaseTransaction$TransactionTableOperations.commit(BaseTransaction.java:476)"""
_OF_SPARK = """Database Error in model totals (models/buckets/totals.sql)
  [TABLE_OR_VIEW_NOT_FOUND] The table or view `x` cannot be found. SQLSTATE: 42P01; line 1 pos 14;
  'Project [*]"""

# An error outside of the nodes, as of the statements at the start of a run. Its cause is far below in the text.
_BEFORE_THE_NODES = "\n  ".join(
    [
        "Runtime Error",
        "An error occurred while calling o78.sql.",
        ": org.apache.iceberg.exceptions.RuntimeIOException: Failed to create file: /lake/core/t/metadata/4.json",
        *["\tat org.apache.iceberg.hadoop.HadoopOutputFile.createOrOverwrite(HadoopOutputFile.java:87)"] * 40,
        "Caused by: java.io.FileNotFoundException: /lake/core/t/metadata/4.json (Read-only file system)",
        *["\tat java.base/java.io.FileOutputStream.open0(Native Method)"] * 10,
        "\t... 21 more",
    ]
)


@pytest.mark.parametrize(
    ("message", "line"),
    [
        (_OF_ICEBERG, "org.apache.iceberg.exceptions.CommitFailedException: Table metadata refresh is required"),
        (_OF_SPARK, "[TABLE_OR_VIEW_NOT_FOUND] The table or view `x` cannot be found. SQLSTATE: 42P01; line 1 pos 14;"),
        ("Got 2 results, configured to fail if != 0", "Got 2 results, configured to fail if != 0"),
        ("", ""),
    ],
)
def test_the_line_with_the_cause_is_reported(message: str, line: str) -> None:
    assert first_message_line(message) == line


@pytest.mark.parametrize("text", [b"", b"- a list", b"model-paths: 5", b"a: [", b"\xff\xfe"])
def test_unknown_settings_are_reported(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "dbt_project.yml").write_bytes(text)
    with pytest.raises(Failure, match=r"the dbt project can't be parsed: dbt_project\.yml"):
        Project(folder=tmp_path)


def test_a_cause_below_a_long_stack_trace_is_reported() -> None:
    failure = _make_failure(_BEFORE_THE_NODES, "dbt did not finish", "dbt build", lake="/lake")
    assert isinstance(failure, Unavailable)
    assert str(failure) == "the file system is read-only: /lake/core/t/metadata. Make it writable."


def test_a_full_disk_without_a_folder_is_that_of_the_lake() -> None:
    text = (
        "org.apache.hadoop.fs.FSError: java.io.IOException: No space left on device\n\tat java.base/sun.nio.ch.X.write"
    )
    failure = _make_failure(text, "dbt did not finish", "dbt build", lake="/srv/lake")
    assert str(failure) == "no space is left on the disk: /srv/lake. Free space there."


def test_a_full_disk_reported_by_python_is_that_of_dbts_files() -> None:
    failure = _make_failure("Runtime Error\n  [Errno 28] No space left on device", "dbt", "dbt build", lake="/srv/lake")
    assert str(failure) == "no space is left on the disk: target/. Free space there."


def test_javas_stack_trace_is_only_in_the_log_file(caplog: pytest.LogCaptureFixture) -> None:
    text = _BEFORE_THE_NODES.replace("(Read-only file system)", "(Is a directory)")
    line = _shorten(text)
    assert line.startswith("Runtime Error : org.apache.iceberg.exceptions.RuntimeIOException: Failed to create file")
    assert line.endswith("(Is a directory)")
    assert len(line) < MESSAGE_LENGTH
    with caplog.at_level(logging.ERROR):
        _make_failure(text, "dbt did not finish", "dbt build", lake="/lake")
    assert "HadoopOutputFile.java:87" in caplog.text
