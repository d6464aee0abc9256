"""Logging of the commands: records on stderr, and with tracebacks in `logs/tidemark.log`."""

import logging
from contextlib import suppress
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

from ingest.cli.terminal import print_line
from ingest.common.errors import UsageError, printable, redact

LOG = Path("logs/tidemark.log")


def log_to_file() -> None:
    """Sets up the loggers. Raises UsageError if the file can't be written."""
    try:
        LOG.parent.mkdir(exist_ok=True)
        file_handler = _LogFile(LOG, maxBytes=10_000_000, backupCount=3)
    except OSError as error:
        raise UsageError(
            f"the log can't be written ({error.strerror})", str(LOG), "Start Tidemark in a folder that you may write to"
        ) from None
    logging.raiseExceptions = False  # otherwise a full disk prints a traceback for each record
    file_handler.setFormatter(_RedactingFormatter("%(asctime)s %(levelname)s %(name)s %(threadName)s: %(message)s"))
    screen_handler = logging.StreamHandler()
    screen_handler.setFormatter(_BriefFormatter("%(asctime)s %(message)s", "%H:%M:%S"))
    # For libraries; otherwise py4j prints the traceback of a lost connection.
    logging.getLogger().addHandler(file_handler)
    for name in ("ingest", "tidemark"):
        logger = logging.getLogger(name)
        logger.setLevel(logging.INFO)
        logger.propagate = False
        logger.addHandler(file_handler)
        logger.addHandler(screen_handler)


class _LogFile(RotatingFileHandler):
    """Prints once that the log can't be written, and once that it can be again."""

    _fails = False

    def emit(self, record: logging.LogRecord) -> None:
        self._fails, had_failed = False, self._fails
        super().emit(record)
        if self._fails is not had_failed:
            state = "can't be written" if self._fails else "is written again"
            with suppress(OSError):  # the screen may be a file on the same disk
                print_line(f"tidemark: the log {state}: {LOG}.", err=True)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: ARG002, N802  # logging's name
        self._fails = True
        if self.stream is not None:  # otherwise its buffer would be written later, and again with each record
            with suppress(OSError):
                self.stream.close()
            self.stream = None  # type: ignore[assignment]  # the next record opens it


class _RedactingFormatter(logging.Formatter):
    """Removes passwords. Messages are one line and tracebacks are indented, so neither can look like another record."""

    def format(self, record: logging.LogRecord) -> str:
        message = printable(redact(record.getMessage()))
        return super().format(logging.makeLogRecord({**vars(record), "msg": message, "args": (), "exc_text": None}))

    def formatException(self, ei: Any) -> str:  # noqa: N802  # logging's name
        return "\n".join(f"    {printable(line)}" for line in redact(super().formatException(ei)).split("\n"))


class _BriefFormatter(_RedactingFormatter):
    """Removes tracebacks too."""

    def format(self, record: logging.LogRecord) -> str:
        return super().format(logging.makeLogRecord({**vars(record), "exc_info": None, "exc_text": None}))
