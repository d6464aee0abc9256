"""The error for text of a source that is not UTF-8."""

from ingest.common.errors import Failure


def utf8_failure(what: str, where: str) -> Failure:
    """The Failure for a value or a name (`what`) that is not UTF-8."""
    fix = "A database with encoding SQL_ASCII must contain only UTF-8 to be replicated"
    return Failure(f"a {what} is not valid UTF-8", where, fix)
