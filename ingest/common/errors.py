"""What Tidemark says when it can't go on: one line with what happened, where, and what to do.

`UsageError` (exit code 2) is for what the person asked or configured, `Failure` (exit code 1) for
what the world did. Neither carries a secret: both pass their parts through `redact`, as everything
must that gets near a message, a log line or a plan.
"""

import re
from typing import ClassVar

REDACTED = "***"

_HIDDEN_KEYS = r"(?:password|passfile|sslpassword|oauth_client_secret|secret|token)"
# Greedy up to the last `@`: a secret whose `/` or `@` was left unescaped must not show either.
_URI_USERINFO = re.compile(r"(?P<head>[a-z][a-z0-9+.-]*://[^\s:/@?#]*):\S*@", re.IGNORECASE)
_KEY_VALUE = re.compile(
    rf"(?P<head>\b{_HIDDEN_KEYS}\s*=\s*)(?:'(?:[^'\\]|\\.|'')*'?|(?:[^\s&'\\]|\\.)+)", re.IGNORECASE
)


def redact(text: str) -> str:
    """`text` with every password in it replaced by `***`.

    Knows URIs (`scheme://user:secret@host`, also with unescaped `/` or `@` in the secret) and their
    parameters, and key=value connection strings, quoted values included. Anything else is left as
    it is, so whole server messages can be passed through.
    """
    text = _URI_USERINFO.sub(rf"\g<head>:{REDACTED}@", text)
    return _KEY_VALUE.sub(rf"\g<head>{REDACTED}", text)


# C0, DEL, C1, the separators of lines and paragraphs, and what changes the direction of writing.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """`text` with its control characters escaped as in a Python literal, so that no name can forge a line or colour it.

    For text that is logged or printed. Letters of any script stay as they are; JSON escapes by itself.
    """
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def one_line(text: str) -> str:
    """`text` on one line: runs of white space, newlines included, become one blank."""
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
    """The text of an error; None for an error of a JVM that has ended, which kept the text."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001  # whatever py4j raises without its JVM
        return None


class TidemarkError(Exception):
    """Base of all errors that are shown to a person: `what: where. fix` on one line.

    what: what happened, beginning in lower case; where: the source, table, file or setting that it
    concerns; fix: what to do about it, a sentence. `where` and `fix` may be empty.
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
    """Something was asked for or configured that can't be done as it is said."""

    exit_code: ClassVar[int] = 2


class Failure(TidemarkError):
    """Something that was asked for rightly didn't work out."""

    exit_code: ClassVar[int] = 1


class Unavailable(Failure):
    """Something outside of Tidemark fails at the moment: a server, a disk, a folder, a catalog, an object store.

    It may recover without manual action, so a job waits and restarts from the stored state.
    """
