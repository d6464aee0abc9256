"""Jobs that are killed at random points, for the random tests."""

import random
import threading
from collections.abc import Callable

from ingest.snapshot.snapshotter import SnapshotHooks, Snapshotter
from ingest.stream.batch_committer import CommitHooks
from ingest.stream.stream_writer import StreamWriter
from tests.harness.kill_points import Killed
from tests.harness.postgres_jobs import PostgresJobs


class RandomKills:
    """A context in which the stream and one or two snapshot workers run, are killed at random hooks, and restart."""

    def __init__(self, jobs: PostgresJobs, rng: random.Random) -> None:
        self._jobs, self._rng = jobs, rng
        self._is_over = threading.Event()
        self._running: list[StreamWriter | Snapshotter] = []
        self._failures: list[BaseException] = []
        makers: list[Callable[[], StreamWriter | Snapshotter]] = [
            lambda: jobs.writer(CommitHooks(*[self._kill_at_random] * 4)),
            *[lambda: jobs.snapshotter(SnapshotHooks(*[self._kill_at_random] * 5))] * rng.randint(1, 2),
        ]
        self._threads = [threading.Thread(target=self._run_repeatedly, args=[make]) for make in makers]

    def __enter__(self) -> None:
        self._jobs.open()
        for thread in self._threads:
            thread.start()

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for running in list(self._running):
            running.stop()
        for thread in self._threads:
            thread.join(120)
            assert not thread.is_alive(), "a job does not stop"
        for failure in self._failures:
            raise failure

    def _kill_at_random(self, _: object) -> None:
        if self._rng.random() < 0.15:
            raise Killed

    def _run_repeatedly(self, make: Callable[[], StreamWriter | Snapshotter]) -> None:
        while not self._is_over.is_set() and not self._failures:
            try:
                job = make()
                self._running.append(job)
                if self._is_over.is_set():
                    job.stop()
                job.run()
            except Killed:
                pass
            except BaseException as error:  # noqa: BLE001  # raised by the test's own thread
                self._failures.append(error)
