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


def call_on_stop_signal(stop: Callable[[], None], when: str = "") -> None:
    """Calls `stop` on SIGTERM and SIGINT. when: what the command completes first; logged at once.

    In a thread, as a signal handler may interrupt code that holds the lock of the log or of an event.
    """

    def work() -> None:
        if when:
            logging.getLogger("tidemark").info("stopping %s", when)
        stop()

    def start_stop(*_: object) -> None:
        threading.Thread(target=work, name="stopping").start()

    signal.signal(signal.SIGTERM, start_stop)
    signal.signal(signal.SIGINT, start_stop)


def call_on_hangup(deploy: Callable[[], None]) -> None:
    """Calls `deploy` on SIGHUP, in a thread for the same reason."""
    signal.signal(signal.SIGHUP, lambda *_: threading.Thread(target=deploy, name="deploying").start())
