"""Errors of the environment become one short line with the folder; other errors are unchanged."""

import errno
import os

import pytest

from ingest.common.environment_errors import unavailable, unavailable_text
from ingest.common.errors import Failure, Unavailable

# As pyarrow, Java, Hadoop, SQLite and Iceberg print them, shortened to the relevant lines.
TEXTS = {
    "java.io.IOException: No space left on device\n\tat java.base/sun.nio.ch.FileDispatcherImpl.write0": "no space",
    "[Errno 28] Error writing bytes to file. Detail: [errno 28] No space left on device": "no space",
    "org.sqlite.SQLiteException: [SQLITE_FULL] Insertion failed because database is full": "no space",
    "Caused by: java.io.IOException: Disk quota exceeded": "quota",
    "Invalid update timestamp 1764403200000: before last snapshot log entry at 1764403500000": "clock",
    "[SQLITE_READONLY] Attempt to write a readonly database": "read-only",
    "java.io.IOException: Mkdirs failed to create file:/lake/raw/t (exists=false, cwd=file:/here)": "can't be written",
    "[SQLITE_BUSY] The database file is locked (database is locked)": "locked the catalog",
    "org.postgresql.util.PSQLException: Connection to db:5432 refused. Check that the hostname": "does not answer",
    "org.apache.iceberg.jdbc.UncheckedSQLException: Failed to connect: jdbc:postgresql://db/c": "does not answer",
    "When uploading part: AWS Error SLOW_DOWN during UploadPart operation": "does not answer",
}


@pytest.mark.parametrize("text", TEXTS)
def test_texts_of_the_environment_are_recognised(text: str) -> None:
    actual = unavailable_text(text, "the lake")
    assert actual is not None
    assert TEXTS[text] in actual.what


def test_the_folder_comes_from_the_text_or_from_the_caller() -> None:
    text = "Mkdirs failed to create file:/lake/raw/t (exists=false, cwd=file:/here)"
    for message, location in ((text, "file:/lake/raw"), ("No space left on device\n\tat /java/io", "the lake")):
        actual = unavailable_text(message, "the lake")
        assert actual is not None
        assert actual.where == location


def test_an_os_error_is_recognised_by_its_number_and_has_a_folder() -> None:
    error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/lake/raw/data/4711.parquet")
    assert str(unavailable(error, "elsewhere")) == "no space is left on the disk: /lake/raw/data. Free space there."
    error = OSError(errno.EACCES, "Failed to open local file '/lake/raw/x.parquet'. Detail: Permission denied")
    actual = unavailable(error, "elsewhere")
    assert actual is not None
    assert actual.where == "/lake/raw"


@pytest.mark.parametrize(
    "error",
    [
        ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"),  # Spark's Java process has ended
        FileNotFoundError(errno.ENOENT, "No such file or directory", "/lake/x"),
        ValueError("No space left on device"),
        Failure("permission denied for table t"),
    ],
)
def test_other_errors_are_not_environment_errors(error: Exception) -> None:
    assert unavailable(error, "the lake") is None


def test_an_unavailable_error_is_returned_unchanged() -> None:
    error = Unavailable("no primary answers", "db:27017")
    assert unavailable(error, "the lake") is error
