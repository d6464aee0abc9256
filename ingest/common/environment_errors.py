"""Recognises temporary errors of the environment: a full or read-only disk, a catalog or an object store that does
not answer.

Matches the number of an `OSError`, otherwise the text of an error of Java, SQLite, pyarrow or dbt.
"""

import errno
import re
from collections.abc import Iterable
from dataclasses import dataclass

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from ingest.common.errors import Failure, Unavailable, text_of


@dataclass(frozen=True)
class _Cause:
    """A kind of failure. numbers: the `errno` values of an OSError. text: matches other errors. what, fix: the texts of
    the Unavailable.
    """

    numbers: tuple[int, ...]
    text: re.Pattern[str]
    what: str
    fix: str


_DISK_CAUSES = (
    _Cause(
        (errno.ENOSPC,),
        re.compile(r"No space left on device|SQLITE_FULL|database or disk is full"),
        "no space is left on the disk",
        "Free space there",
    ),
    _Cause(
        (errno.EDQUOT, errno.EFBIG),
        re.compile(r"Disk quota exceeded|File too large"),
        "a disk quota or a file size limit is exceeded",
        "Raise it, or free space there",
    ),
    _Cause(
        (errno.EROFS,),
        re.compile(r"Read-only file system|SQLITE_READONLY|attempt to write a readonly database"),
        "the file system is read-only",
        "Make it writable",
    ),
    _Cause(
        (errno.EACCES, errno.EPERM),
        re.compile(
            r"Permission denied|Mkdirs failed to create|AccessDeniedException|AccessControlException|SQLITE_CANTOPEN"
            r"|AWS Error ACCESS_DENIED|Access Denied"
        ),
        "the folder or the object store can't be written",
        "Give this process the permission",
    ),
    _Cause(
        (errno.EIO, errno.ESTALE, errno.ENODEV, errno.ENOTCONN),
        re.compile(r"Input/output error|SQLITE_IOERR|Stale file handle"),
        "the disk or its mount fails",
        "Check the disk, the mount and the kernel's log",
    ),
)
_SERVICE_CAUSES = (
    _Cause(
        (),
        re.compile(r"SQLITE_BUSY|SQLITE_LOCKED|database is locked"),
        "another process has locked the catalog",
        "End that process, or use a catalog server",
    ),
    _Cause(
        (),
        re.compile(
            r"java\.net\.(?:Connect|UnknownHost|NoRouteToHost|SocketTimeout|Socket)Exception|HttpHostConnectException"
            r"|ConnectTimeoutException|NoHttpResponseException|TTransportException|Communications link failure"
            r"|The connection attempt failed|Connection to \S+ refused|SQL(?:Non)?TransientConnectionException"
            r"|UncheckedSQLException: Failed to connect|JdbcClientPool|Service(?:Unavailable|Failure)Exception"
            r"|SdkClientException|SlowDown|AWS Error (?:NETWORK_CONNECTION|SLOW_DOWN|SERVICE_UNAVAILABLE"
            r"|INTERNAL_FAILURE|REQUEST_TIMEOUT|THROTTLING)"
        ),
        "the catalog or the object store does not answer",
        "Check that it runs and can be reached",
    ),
    _Cause(
        (),
        re.compile(r"Invalid (?:update|snapshot) timestamp \d"),
        "this machine's clock is behind the last commit to the lake",
        "Correct the clocks of all machines that write to the lake",
    ),
)
_CAUSES = (*_DISK_CAUSES, *_SERVICE_CAUSES)
# An absolute path, as it appears in messages of Java, pyarrow and SQLite.
_PATH = re.compile(r"(?:[a-z][a-z0-9]*:/{1,3}|/)[^\s:'\"()\[\],;]*/[^\s:'\"()\[\],;]*")
# A path is searched for within this many characters around the match of a cause.
_SEARCH_DISTANCE = 300


def unavailable(error: BaseException, where: str) -> Unavailable | None:
    """`error` as Unavailable; None if its cause is not the environment. where: used if `error` names no path."""
    if isinstance(error, Unavailable):
        return error
    if isinstance(error, Failure):
        return None
    if isinstance(error, OSError) and error.errno is not None:
        for cause in _CAUSES:
            if error.errno in cause.numbers:
                path = error.filename if isinstance(error.filename, str) else _find_path(str(error), len(str(error)))
                return Unavailable(cause.what, _get_folder(path) or where, cause.fix)
        return None
    if isinstance(error, OSError | PySparkException | Py4JJavaError):
        return unavailable_text(text_of(error) or "", where)
    return None


def unavailable_text(text: str, where: str) -> Unavailable | None:
    """As `unavailable`, for the text of an error, which may contain a stack trace."""
    return _find_cause(_CAUSES, text, where)


def disk_fails(text: str, where: str) -> Unavailable | None:
    """As `unavailable_text`, but only if the cause is a disk or a folder, not a service or a lock on the catalog."""
    return _find_cause(_DISK_CAUSES, text, where)


def _find_cause(causes: Iterable[_Cause], text: str, where: str) -> Unavailable | None:
    for cause in causes:
        if match := cause.text.search(text):
            return Unavailable(cause.what, _get_folder(_find_path(text, match.start())) or where, cause.fix)
    return None


def _find_path(text: str, position: int) -> str:
    """The path next to a position in the text, on the same line: the last one before the position, else the first
    one after it.
    """
    start = max(text.rfind("\n", 0, position) + 1, position - _SEARCH_DISTANCE)
    end = text.find("\n", position)
    end = min(len(text) if end < 0 else end, position + _SEARCH_DISTANCE)
    paths_before = _PATH.findall(text[start:position])
    paths_after = _PATH.findall(text[position:end])
    return str(paths_before[-1] if paths_before else paths_after[0] if paths_after else "")


def _get_folder(path: str) -> str:
    """The folder of a path: file names differ between attempts."""
    return path.rpartition("/")[0]
