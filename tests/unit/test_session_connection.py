"""Which statements may change the settings of the session that dbt's connections share."""

import pytest

from dbt.adapters.tidemark.session_connection import CHANGES_SETTINGS

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
