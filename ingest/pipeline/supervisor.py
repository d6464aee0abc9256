"""Runs the jobs of one source, and restarts them after a failure from the state that is stored in the lake.

Sources are independent: the jobs of the others go on. A failure of the environment (`Unavailable`) is retried with
exponential back-off. Any other failure requires manual action and is retried at a fixed interval.
"""

import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import Empty, Queue

from ingest.common.errors import TidemarkError, Unavailable, one_line, redact, text_of
from ingest.common.log_repeats import Repeats, message_pattern

_log = logging.getLogger(__name__)

# Seconds before failed jobs are restarted: the first and the longest pause after a failure of the environment; the
# pause after a failure that needs manual action.
FIRST_SECONDS, LONGEST_SECONDS, MANUAL_ACTION_SECONDS = 1.0, 60.0, 60.0
# Jobs that have run for this long are considered recovered. Doubled each time the same failure returns within
# LONGEST_STEADY_SECONDS: otherwise an event that always fails after a while would be a new problem each time.
STEADY_SECONDS, LONGEST_STEADY_SECONDS = 10.0, 600.0


# More doublings than any pause needs to reach its maximum. A float overflows after 1023.
_DOUBLINGS = 60


def backoff(failures: int, first: float, longest: float) -> float:
    """Seconds to wait after so many failures in a row (1 or more): `first`, doubled each time, up to `longest`."""
    return min(first * 2.0 ** min(failures - 1, _DOUBLINGS), longest)


@dataclass(frozen=True)
class Job:
    """The work of a thread. `stop` makes `run` return; another thread calls it, perhaps before `run`."""

    name: str
    run: Callable[[], object]
    stop: Callable[[], None]


class Supervisor:
    """The jobs of one source, in threads: `start` starts them, `stop` requests their end, `join` waits for it.

    error: the current error of the jobs; None while they run or start. has_opened: they were started at least
    once. was_tried: the first attempt to open them has ended.
    """

    def __init__(
        self,
        name: str,
        open_jobs: Callable[[], Sequence[Job]],
        explain: Callable[[BaseException], Unavailable | None],
        on_change: Callable[["Supervisor"], None],
    ) -> None:
        """open_jobs: makes new jobs; called by the supervisor's thread for each attempt. explain: returns
        an error as Unavailable, None if its cause is not the environment. on_change: called when `error` has changed,
        and when the jobs have been opened.
        """
        self.name = name
        self.error: BaseException | None = None
        self.has_opened = False
        self.was_tried = False
        self._open_jobs = open_jobs
        self._explain = explain
        self._on_change = on_change
        self._repeats = Repeats(_log)
        self._is_open = False
        self._steady_seconds = STEADY_SECONDS
        self._last_failure_pattern = ""
        self._recovered_at: float | None = None
        self._stopping = threading.Event()
        self._jobs: Sequence[Job] = ()
        self._thread = threading.Thread(target=self._run, name=f"source {name}", daemon=True)

    @property
    def is_failed(self) -> bool:
        """Whether waiting is pointless: the failure requires manual action, or the jobs could never be opened."""
        return self.error is not None and not (self.has_opened and isinstance(self.error, Unavailable))

    def start(self) -> None:
        """Start the supervisor's thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the jobs after the commits in progress, and do not restart them."""
        self._stopping.set()
        self._stop_jobs()

    def join(self, timeout: float | None = None) -> bool:
        """Waits until all jobs have ended, up to `timeout` seconds (None: no limit); returns whether they have."""
        if self._thread.ident is not None:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        attempts = 0
        while not self._stopping.is_set():
            started_at = time.monotonic()
            error = self._run_jobs()
            self.was_tried = True
            if error is None:
                if self._is_open:
                    self._set_error(None)
                return
            attempts = 1 if time.monotonic() - started_at >= self._steady_seconds else attempts + 1
            known_error = self._explain(error)
            self._adapt_steady_seconds(known_error or error)
            pause = MANUAL_ACTION_SECONDS
            if known_error is not None:
                pause = backoff(attempts, FIRST_SECONDS, LONGEST_SECONDS) * random.uniform(0.5, 1.0)  # noqa: S311
            if not self._stopping.is_set():
                self._log_failure(known_error or error)
            self._set_error(known_error or error)
            self._stopping.wait(pause)

    def _adapt_steady_seconds(self, failure: BaseException) -> None:
        """Sets how long the jobs have to run after this failure to be considered recovered."""
        failure_pattern = message_pattern(
            failure.what if isinstance(failure, TidemarkError) else describe_unexpected(failure)
        )
        if self._recovered_at is not None:
            is_soon = time.monotonic() - self._recovered_at < LONGEST_STEADY_SECONDS
            is_same = is_soon and failure_pattern == self._last_failure_pattern
            self._steady_seconds = min(2 * self._steady_seconds, LONGEST_STEADY_SECONDS) if is_same else STEADY_SECONDS
        self._last_failure_pattern, self._recovered_at = failure_pattern, None

    def _run_jobs(self) -> BaseException | None:
        """Run the jobs until all have ended; the error of the first that failed, which ends the others."""
        self._is_open = False
        try:
            self._jobs = self._open_jobs()
        except BaseException as error:  # noqa: BLE001  # any error fails the source
            is_cancelled = self._stopping.is_set() and not isinstance(error, TidemarkError)
            return None if is_cancelled else error
        self._is_open = self.has_opened = self.was_tried = True
        outcomes: Queue[BaseException | None] = Queue()
        for job in self._jobs:
            threading.Thread(target=_run_job, args=[job, outcomes], name=job.name, daemon=True).start()
        if self._stopping.is_set():
            self._stop_jobs()
        self._on_change(self)
        return self._watch_jobs(outcomes)

    def _watch_jobs(self, outcomes: "Queue[BaseException | None]") -> BaseException | None:
        failure: BaseException | None = None
        steady_timeout: float | None = self._steady_seconds
        running_count = len(self._jobs)
        while running_count:
            try:
                outcome = outcomes.get(timeout=steady_timeout)
            except Empty:
                steady_timeout = None
                self._set_error(None)
                continue
            running_count -= 1
            if outcome is not None and failure is None:
                failure = outcome
                self._stop_jobs()
        return failure

    def _stop_jobs(self) -> None:
        for job in self._jobs:
            job.stop()

    def _log_failure(self, error: BaseException) -> None:
        """Log a failure; an unexpected error with its traceback, which goes to the log file only."""
        if isinstance(error, Unavailable):
            self._repeats.occurred(f"source {self.name}: {error} Retrying.", key=error.what)
        else:
            text = str(error) if isinstance(error, TidemarkError) else describe_unexpected(error)
            message = f"source {self.name} has failed: {text} Retrying every {MANUAL_ACTION_SECONDS:.0f} s."
            self._repeats.occurred(message, logging.ERROR, cause=None if isinstance(error, TidemarkError) else error)

    def _set_error(self, error: BaseException | None) -> None:
        previous_error, self.error = self.error, error
        if error is None:
            self._recovered_at = time.monotonic() if previous_error is not None else self._recovered_at
            self._repeats.over(f"source {self.name}: its jobs run again")
        if error is not previous_error:
            self._on_change(self)


def _run_job(job: Job, outcomes: "Queue[BaseException | None]") -> None:
    try:
        job.run()
    except BaseException as error:  # noqa: BLE001  # any error fails the source
        outcomes.put(error)
    else:
        outcomes.put(None)


def describe_unexpected(error: BaseException) -> str:
    """An error that is not a TidemarkError, on one line."""
    text = text_of(error)
    return "Spark has ended." if text is None else f"{type(error).__name__}: {one_line(redact(text))[:300]}."
