"""Which statements may change the settings of the session that dbt's connections share."""

from pathlib import Path

import pytest
from dbt_common.exceptions import DbtRuntimeError

from dbt.adapters.tidemark import session_connection
from dbt.adapters.tidemark.session_connection import CHANGES_SETTINGS, start_spark
from ingest.common.errors import Failure

QUERY_COMMENT = '/* {"app": "dbt"} */\n'


@pytest.mark.parametrize(
    "statement",
    ["set a = 1", "SET a", "reset", "-- why\n\tReset a", "/* why */ set a = 1", "execute immediate 'set a = 1'"],
)
def test_statements_that_change_settings_are_known_after_comments(statement: str) -> None:
    assert CHANGES_SETTINGS.match(QUERY_COMMENT + statement)


@pytest.mark.parametrize(
    "statement",
    ["select 1", "settle", "/* set */ select 1", "merge into t using s /* x */ set a = 1", "-- set a\nselect 1"],
)
def test_other_statements_are_not_taken_for_them(statement: str) -> None:
    assert not CHANGES_SETTINGS.match(QUERY_COMMENT + statement)


def test_many_comments_are_read_once() -> None:
    """With a pattern that can end a comment at a later `*/`, the time doubles with each comment."""
    assert not CHANGES_SETTINGS.match(QUERY_COMMENT + "create view v as\n" + "/* line */\n" * 500 + "select 1")
    assert CHANGES_SETTINGS.match("/* line */\n" * 500 + "set a = 1")


@pytest.fixture
def java_starts(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """The settings of each start of Java; it fails."""
    starts: list[dict[str, str]] = []

    def start(settings: dict[str, str], _: Path) -> None:
        starts.append(settings)
        raise Failure("Java didn't start", "local", "Check Java")

    monkeypatch.setattr(session_connection, "start_local", start)
    return starts


def test_a_failed_start_of_spark_is_an_error_of_dbt(java_starts: list[dict[str, str]]) -> None:
    with pytest.raises(DbtRuntimeError, match="Java didn't start"):
        start_spark({"spark.master": "local"})
    assert java_starts == [{"spark.sql.catalogImplementation": "hive", "spark.master": "local"}]


@pytest.mark.parametrize(
    ("settings", "variable"),
    [
        ({"spark.remote": "sc://host"}, None),
        ({"spark.api.mode": "connect"}, None),
        ({}, "SPARK_REMOTE"),
        ({}, "SPARK_CONNECT_MODE_ENABLED"),
    ],
)
def test_no_java_is_started_for_spark_connect(
    java_starts: list[dict[str, str]],
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, str],
    variable: str | None,
) -> None:
    if variable:
        monkeypatch.setenv(variable, "sc://host")
    start_spark(settings)
    assert java_starts == []
