"""SIGTERM and SIGINT end a command after the work in progress; SIGHUP deploys the project."""

import logging
import signal
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ingest.pipeline.ingest_jobs import Jobs


def run_jobs(jobs: "Jobs", until_caught_up: bool, timeout: float | None) -> None:
    """Runs the jobs until they have caught up, or until SIGTERM. timeout: in seconds."""
    call_on_stop_signal(jobs.request_stop, "after the commits in progress")
    with jobs.running(timeout):
        jobs.wait(until_caught_up)


def call_on_stop_signal(stop: Callable[[], None], last_work: str = "") -> None:
    """Calls `stop` on SIGTERM and SIGINT. last_work: what the command completes first; logged at once.

    The call is made in a thread, because a signal handler may interrupt code that holds the lock of the log or of an
    event.
    """

    def log_and_stop() -> None:
        if last_work:
            logging.getLogger("tidemark").info("stopping %s", last_work)
        stop()

    def start_stop_thread(*_: object) -> None:
        threading.Thread(target=log_and_stop, name="stopping").start()

    signal.signal(signal.SIGTERM, start_stop_thread)
    signal.signal(signal.SIGINT, start_stop_thread)


def call_on_hangup(deploy: Callable[[], None]) -> None:
    """Calls `deploy` on SIGHUP, also in a thread."""
    signal.signal(signal.SIGHUP, lambda *_: threading.Thread(target=deploy, name="deploying").start())
