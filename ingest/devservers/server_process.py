"""A server as a child process with its own folder; it can be stopped, killed and restarted.

The folder holds the server's `data`, its `log` and a `lock`, so that two processes never run a
server on the same data. A server left over by a killed process is killed before a new one starts.
Every wait is for a condition, up to `PATIENCE` seconds. Raises UsageError if the folder is in use,
Failure if a server does not start.
"""

import contextlib
import fcntl
import os
import pwd
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

import psutil
from typing_extensions import Self

from ingest.common.errors import Failure, UsageError

PATIENCE = 60.0
POLL = 0.02


class ServerProcess:
    """Base of the embedded servers; a subclass starts the server and checks whether it is up."""

    name = "server"
    stop_signal = signal.SIGTERM

    def __init__(self, folder: Path) -> None:
        """Starts nothing yet. folder: created by `start` if missing."""
        self.folder = folder.absolute()
        self.data = self.folder / "data"
        self.log = self.folder / "log"
        self._process: subprocess.Popen[bytes] | None = None
        self._lock: int | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int | None:
        """The server's process id, None when it isn't running."""
        running = self._process is not None and self._process.poll() is None
        return self._process.pid if self._process is not None and running else None

    def start(self) -> None:
        """Starts the server and returns when it accepts connections; no effect if it runs."""
        if self.pid is not None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        self._take_lock()
        try:
            self._end_leftover()
            self._launch()
            self._wait(self._is_up)
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Stops the server cleanly, ending its connections; no effect if it does not run."""
        if self._process is not None:
            self._process.send_signal(self.stop_signal)
            try:
                self._process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.kill()
        self._release()

    def kill(self) -> None:
        """Kills the server and its children, like a crash, and waits until all have exited."""
        if self._process is not None:
            _kill_tree(self._process.pid)
            self._process.wait(PATIENCE)
        self._release()

    def _launch(self) -> None:
        raise NotImplementedError

    def _is_up(self) -> bool:
        raise NotImplementedError

    def _leftover(self) -> int | None:
        """The process id in the data folder; that process may have ended."""
        raise NotImplementedError

    def _spawn(self, command: Sequence[str], environment: Mapping[str, str], user: int | None) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",  # the server's user may have no access to the current folder
                env=dict(environment),
                start_new_session=True,  # so that Ctrl-C does not reach the server
                user=user,
                group=None if user is None else pwd.getpwuid(user).pw_gid,
                extra_groups=None if user is None else [],
            )

    def _wait(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if self.pid is None or time.monotonic() > deadline:
                raise Failure(f"{self.name} did not start ({self._last_words()})", str(self.log))
            time.sleep(POLL)

    def _last_words(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return " | ".join(lines[-3:]) or "its log is empty"

    def _take_lock(self) -> None:
        self._lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            self._lock = None
            fix = "Wait until it ends, or end it"
            raise UsageError(f"another process runs a {self.name} here", str(self.folder), fix) from None

    def _release(self) -> None:
        self._process = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _end_leftover(self) -> None:
        """Kills the server of a killed process: this process holds the lock, so no other process uses it."""
        pid = self._leftover()
        if pid is None or not psutil.pid_exists(pid):
            return
        try:
            is_own = str(self.data) in psutil.Process(pid).cmdline()
        except psutil.Error:
            return
        if is_own:
            _kill_tree(pid)


def _kill_tree(pid: int) -> None:
    """Kills a process and its descendants, and waits until all have exited."""
    try:
        process = psutil.Process(pid)
        family = [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    for member in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            member.kill()
    deadline = time.monotonic() + PATIENCE
    while any(map(_is_alive, family)) and time.monotonic() < deadline:
        time.sleep(POLL)


def _is_alive(process: psutil.Process) -> bool:
    # An exited process stays a zombie until its parent waits for it, which may take long in a container.
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
