"""Tidemark's errors: one line with what happened, where, and what to do.

`UsageError` (exit code 2) is for wrong usage or configuration, `Failure` (exit code 1) for all other
errors. Neither contains a secret: both pass their parts through `redact`, as every message, log line
and plan must.
"""

import re
from typing import ClassVar

REDACTED = "***"

_HIDDEN_KEYS = r"(?:password|passfile|sslpassword|oauth_client_secret|secret|token)"
# Greedy up to the last `@`, to hide a secret with an unescaped `/` or `@` as well.
_URI_USERINFO = re.compile(r"(?P<head>[a-z][a-z0-9+.-]*://[^\s:/@?#]*):\S*@", re.IGNORECASE)
_KEY_VALUE = re.compile(
    rf"(?P<head>\b{_HIDDEN_KEYS}\s*=\s*)(?:'(?:[^'\\]|\\.|'')*'?|(?:[^\s&'\\]|\\.)+)", re.IGNORECASE
)


def redact(text: str) -> str:
    """`text` with every password in it replaced by `***`.

    Supports URIs (`scheme://user:secret@host`, also with unescaped `/` or `@` in the secret) and their
    parameters, and key=value connection strings, including quoted values. Any other text is unchanged, so
    complete server messages can be passed.
    """
    text = _URI_USERINFO.sub(rf"\g<head>:{REDACTED}@", text)
    return _KEY_VALUE.sub(rf"\g<head>{REDACTED}", text)


# C0, DEL, C1, line and paragraph separators, and characters that change the writing direction.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """`text` with control characters escaped as in a Python literal, so that a name can't forge or colour a line.

    For text that is logged or printed. Letters of any script are unchanged. JSON escapes by itself.
    """
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def one_line(text: str) -> str:
    """`text` on one line: each run of white space, including newlines, becomes one space."""
    return " ".join(text.split())


def first_message_line(text: str) -> str:
    """The first line of an error of Spark, py4j or dbt that is not a heading; the whole text if all lines are.

    dbt's and py4j's texts begin with a heading; Spark's end with a query plan.
    """
    heading = "An error occurred while calling"
    lines = (line.strip().removeprefix(": ") for line in text.splitlines())
    messages = (line for line in lines if line and not line.endswith((")", "Error")) and not line.startswith(heading))
    return next(messages, text)


def text_of(error: BaseException) -> str | None:
    """The text of an error; None if it was in a JVM that has ended."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001  # py4j raises various errors without its JVM
        return None


class TidemarkError(Exception):
    """Base of all errors that are shown to the user: `what: where. fix` on one line.

    what: what happened, starting in lower case; where: the source, table, file or setting; fix: what to do, a
    sentence. `where` and `fix` may be empty.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, what: str, where: str = "", fix: str = "") -> None:
        self.what = one_line(redact(what)).rstrip(".")
        self.where = one_line(redact(where)).rstrip(".")
        self.fix = one_line(redact(fix))
        super().__init__(self.what, self.where, self.fix)

    def __str__(self) -> str:
        head = f"{self.what}: {self.where}" if self.where else self.what
        end = "" if self.fix.endswith((".", "?", "!")) else "."
        return f"{head}. {self.fix}{end}" if self.fix else f"{head}."

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"


class UsageError(TidemarkError):
    """Wrong usage of a command, or wrong configuration."""

    exit_code: ClassVar[int] = 2


class Failure(TidemarkError):
    """A correct request failed."""

    exit_code: ClassVar[int] = 1


class Unavailable(Failure):
    """Something outside of Tidemark is failing: a server, a disk, a folder, a catalog, an object store.

    It may recover without manual action, so a job waits and restarts from the stored state.
    """
