"""Waiting for a condition, with a limit: a test that would wait for ever fails."""

import time
from collections.abc import Callable


def wait_until(condition: Callable[[], bool], seconds: float = 120) -> None:
    """Returns when `condition` is true; it is asked every 20 ms. Fails after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not true after {seconds:g} s"
        time.sleep(0.02)
