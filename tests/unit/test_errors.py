"""Errors are one line, say what to do, and never contain a secret."""

import pickle

import pytest

from ingest.common.errors import Failure, TidemarkError, UsageError, printable, redact


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://me:secret@host/db", "postgresql://me:***@host/db"),
        ("postgresql://me:se/cr@et@host/db", "postgresql://me:***@host/db"),
        ("postgresql://me@host/db", "postgresql://me@host/db"),
        (
            "postgresql://host/db?user=me&password=secret",
            "postgresql://host/db?user=me&password=***",
        ),
        ("mongodb+srv://me:secret@host/?tls=true", "mongodb+srv://me:***@host/?tls=true"),
        ("host=h password=secret dbname=d", "host=h password=*** dbname=d"),
        ("host=h password = 'it''s secret' dbname=d", "host=h password = *** dbname=d"),
        (r"password='it\'s secret' host=h", "password=*** host=h"),
        ("password=se\\ cret host=h", "password=*** host=h"),
        ("host=h PASSWORD=secret", "host=h PASSWORD=***"),
        ("host=h sslpassword=secret", "host=h sslpassword=***"),
        ("a message: without any", "a message: without any"),
    ],
)
def test_passwords_are_replaced_anywhere_in_a_text(text: str, shown: str) -> None:
    assert redact(text) == shown


def test_a_server_message_around_a_connection_string_is_kept() -> None:
    message = 'connection to "postgresql://me:secret@host/db" failed: timeout'
    assert redact(message) == 'connection to "postgresql://me:***@host/db" failed: timeout'


@pytest.mark.parametrize(
    ("parts", "line"),
    [
        (("no such slot", "shop", "Make it"), "no such slot: shop. Make it."),
        (
            ("no such slot", "shop", "Did you mean shop_2?"),
            "no such slot: shop. Did you mean shop_2?",
        ),
        (("no such slot", "shop"), "no such slot: shop."),
        (("no such slot",), "no such slot."),
        (("broken\n  pipe.", "", "Try again."), "broken pipe. Try again."),
    ],
)
def test_an_error_is_one_line(parts: tuple[str, ...], line: str) -> None:
    assert str(TidemarkError(*parts)) == line


def test_no_part_of_an_error_shows_a_secret() -> None:
    dsn = "host=h password=secret"
    error = Failure(f"no answer ({dsn})", dsn, f"Check {dsn}")
    assert "secret" not in f"{error} {error!r} {error.args}"


def test_usage_and_failure_have_the_exit_codes_of_the_command_line() -> None:
    assert (UsageError.exit_code, Failure.exit_code) == (2, 1)


def test_an_error_crosses_processes_unchanged() -> None:
    error = UsageError("what", "where", "fix")
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy)) == (UsageError, str(error))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\nb\rc\td", "a\\nb\\rc\\td"),
        ("\x1b[31mred\x7f\x9b", "\\x1b[31mred\\x7f\\x9b"),
        ("a\u2028b\u2029c\x85", "a\\u2028b\\u2029c\\x85"),
        ("\u202egnp.exe\u2066\u200f", "\\u202egnp.exe\\u2066\\u200f"),
        ("größe 表 عميل [red]x[/red] \\n", "größe 表 عميل [red]x[/red] \\n"),
    ],
)
def test_control_characters_are_escaped_and_letters_are_not(text: str, shown: str) -> None:
    assert printable(text) == shown
