"""PostgresJobs that are killed at random moments, for the random tests."""

import random
import threading
from collections.abc import Callable

from ingest.snapshot.snapshotter import SnapshotHooks, Snapshotter
from ingest.stream.batch_committer import CommitHooks
from ingest.stream.stream_writer import StreamWriter
from tests.harness.kill_points import Killed
from tests.harness.postgres_jobs import PostgresJobs


class RandomKills:
    """A context: the stream and a snapshotter or two run, are killed at random hooks, and begin anew."""

    def __init__(self, jobs: PostgresJobs, randomly: random.Random) -> None:
        self._jobs, self._randomly = jobs, randomly
        self._over = threading.Event()
        self._running: list[StreamWriter | Snapshotter] = []
        self._failures: list[BaseException] = []
        makers: list[Callable[[], StreamWriter | Snapshotter]] = [
            lambda: jobs.writer(CommitHooks(*[self._maybe] * 4)),
            *[lambda: jobs.snapshotter(SnapshotHooks(*[self._maybe] * 5))] * randomly.randint(1, 2),
        ]
        self._threads = [threading.Thread(target=self._again_and_again, args=[make]) for make in makers]

    def __enter__(self) -> None:
        self._jobs.open()
        for thread in self._threads:
            thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for one in list(self._running):
            one.stop()
        for thread in self._threads:
            thread.join(120)
        for failure in self._failures:
            raise failure

    def _maybe(self, _: object) -> None:
        if self._randomly.random() < 0.15:
            raise Killed

    def _again_and_again(self, make: Callable[[], StreamWriter | Snapshotter]) -> None:
        while not self._over.is_set() and not self._failures:
            try:
                job = make()
                self._running.append(job)
                if self._over.is_set():
                    job.stop()
                job.run()
            except Killed:
                pass
            except BaseException as error:  # noqa: BLE001  # raised by the test's own thread
                self._failures.append(error)
