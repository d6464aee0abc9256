"""Logs a repeated problem when it starts, then at growing intervals with a count, and when it is over; logs a state
when it changes.
"""

import logging
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

# Seconds between two lines about one problem: the first pause, doubled each time, and the longest.
FIRST_SECONDS, LONGEST_SECONDS = 30.0, 3600.0

# Parts of a message that differ in each repetition: hexadecimal ids, separate numbers (of Spark's stages and tasks, of
# rows), and py4j objects. Digits within a name such as `t1` are kept.
_VARYING_PART = re.compile(r"\b[0-9a-f]{8}(?:-?[0-9a-f]{4}){3}-?[0-9a-f]{12}\b|\bo\d+(?=\.)|(?<![\w.-])\d[\d.,]*(?!\w)")


def message_pattern(message: str) -> str:
    """A message without its varying parts: equal for the same problem."""
    return _VARYING_PART.sub("#", message)


@dataclass
class _Problem:
    started_at: float
    count: int
    next_line_at: float
    pause: float


class Repeats:
    """The problems of one subject, such as the connection to a source. Safe to use from several threads."""

    def __init__(self, log: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._problems: dict[str, _Problem] = {}
        self._lock = threading.Lock()

    def occurred(
        self, message: str, level: int = logging.WARNING, *, key: str | None = None, cause: BaseException | None = None
    ) -> None:
        """Logs the problem, unless the next line about it is not due yet.

        key: identifies the problem (default: the `message_pattern` of the message). cause: an error to log.
        """
        now = self._clock()
        key = key or message_pattern(message)
        with self._lock:
            problem = self._problems.get(key)
            if problem is None:
                self._problems[key] = _Problem(now, 1, now + FIRST_SECONDS, FIRST_SECONDS)
                line = message
            else:
                problem.count += 1
                if now < problem.next_line_at:
                    return
                problem.pause = min(2 * problem.pause, LONGEST_SECONDS)
                problem.next_line_at = now + problem.pause
                line = f"{message} ({problem.count} times in {now - problem.started_at:,.0f} s)"
        self._log.log(level, "%s", line, exc_info=cause)

    def over(self, message: str) -> None:
        """All problems of the subject are over: logs `message` with their number and duration, if there were any."""
        if not self._problems:  # the usual case, in frequently called loops
            return
        with self._lock:
            problems, self._problems = list(self._problems.values()), {}
        if problems:
            count = sum(problem.count for problem in problems)
            seconds = self._clock() - min(problem.started_at for problem in problems)
            times = "once" if count == 1 else f"{count} times"
            self._log.info("%s; the problem occurred %s in %s s", message, times, f"{seconds:,.0f}")


class StateLog:
    """Logs the states of subjects for jobs that restart repeatedly. Thread-safe."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._last_messages: dict[str, str] = {}

    def log_change(self, subject: str, message: str, level: int = logging.INFO) -> None:
        """Logs the state of a subject, unless it was the last one logged."""
        if self._last_messages.get(subject) != message:
            self._last_messages[subject] = message
            self._log.log(level, "%s", message)
