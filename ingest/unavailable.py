"""Recognises errors that the environment causes and can take back: a full or read-only disk, a catalog or an object
store that does not answer.

By the number of an `OSError`, else by the text that Java, SQLite, pyarrow or dbt give. Each becomes one short line.
"""

import errno
import re
from dataclasses import dataclass

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from ingest.errors import Failure, Unavailable


@dataclass(frozen=True)
class _Cause:
    """What is withheld: the numbers of an OSError, the texts of other errors, what is said of them."""

    numbers: tuple[int, ...]
    text: re.Pattern[str]
    what: str
    fix: str


_CAUSES = (
    _Cause(
        (errno.ENOSPC,),
        re.compile(r"No space left on device|SQLITE_FULL|database or disk is full"),
        "no space is left on the disk",
        "Free space there",
    ),
    _Cause(
        (errno.EDQUOT, errno.EFBIG),
        re.compile(r"Disk quota exceeded|File too large"),
        "a quota or a limit of file sizes is exceeded",
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
        re.compile(
            r"Input/output error|SQLITE_IOERR|Stale "
            r"file handle"
        ),
        "the disk does not work",
        "See the log of the machine",
    ),
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
        "See that it runs and can be reached",
    ),
)
# An absolute path, as it stands in messages of Java, pyarrow and SQLite.
_PATH = re.compile(r"(?:[a-z][a-z0-9]*:/{1,3}|/)[^\s:'\"()\[\],;]*/[^\s:'\"()\[\],;]*")
# How far from the sign of a cause a path is looked for (characters).
_NEAR = 300


def unavailable(error: BaseException, where: str) -> Unavailable | None:
    """`error` as what the environment withholds; None if it is something else. where: used if `error` names no path."""
    if isinstance(error, Unavailable):
        return error
    if isinstance(error, Failure):
        return None
    if isinstance(error, OSError) and error.errno is not None:
        for cause in _CAUSES:
            if error.errno in cause.numbers:
                path = error.filename if isinstance(error.filename, str) else _path(str(error), len(str(error)))
                return Unavailable(cause.what, _folder(path) or where, cause.fix)
        return None
    if isinstance(error, OSError | PySparkException | Py4JJavaError):
        return unavailable_text(_text(error), where)
    return None


def unavailable_text(text: str, where: str) -> Unavailable | None:
    """The same of the text of an error, which may have lines of a stack."""
    for cause in _CAUSES:
        if sign := cause.text.search(text):
            return Unavailable(cause.what, _folder(_path(text, sign.start())) or where, cause.fix)
    return None


def _text(error: Exception) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001  # an error of the JVM's asks the JVM, which may have ended
        return ""


def _path(text: str, position: int) -> str:
    """The path next to a position of the text: on its line, the last before it, else the first after it."""
    begin = max(text.rfind("\n", 0, position) + 1, position - _NEAR)
    end = text.find("\n", position)
    end = min(len(text) if end < 0 else end, position + _NEAR)
    before = _PATH.findall(text[begin:position])
    after = _PATH.findall(text[position:end])
    return str(before[-1] if before else after[0] if after else "")


def _folder(path: str) -> str:
    """The folder of a path: names of files differ from attempt to attempt."""
    return path.rpartition("/")[0]
