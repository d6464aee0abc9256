"""The `tidemark run` processes of a project, by files that they keep locked: a killed process leaves no lock."""

import fcntl
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_FOLDER = Path(".tidemark/run")


@contextmanager
def registered(project: Path) -> Iterator[Path]:
    """Registers this process while the context is open. Yields a folder for its own files, which is removed."""
    folder = project / _FOLDER / str(os.getpid())
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield folder
        finally:
            _remove(folder)


def signal_processes(project: Path) -> list[int]:
    """Sends SIGHUP to the project's processes on this machine; returns their ids. Removes what killed ones left."""
    signalled = []
    for folder in sorted((project / _FOLDER).glob("*")):
        with suppress(OSError), (folder / "lock").open("r+") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.kill(int(folder.name), signal.SIGHUP)
                signalled.append(int(folder.name))
            else:
                _remove(folder)
    return signalled


def _remove(folder: Path) -> None:
    """Removes a process's folder, which has files and links, but not what the links name."""
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
