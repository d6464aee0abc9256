"""The `tidemark run` processes of a project, by files that they keep locked: a killed process leaves no lock."""

import fcntl
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_REGISTRY = Path(".tidemark/run")


@contextmanager
def register_process(project: Path) -> Iterator[Path]:
    """Registers this process while the context is open. Yields a folder for its own files, which is removed."""
    folder = project / _REGISTRY / str(os.getpid())
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield folder
        finally:
            _remove_folder(folder)


def signal_processes(project: Path) -> list[int]:
    """Sends SIGHUP to the project's processes on this machine; returns their ids. Removes the folders that killed
    processes left.
    """
    process_ids = []
    for folder in sorted((project / _REGISTRY).glob("*")):
        with suppress(OSError), (folder / "lock").open("r+") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.kill(int(folder.name), signal.SIGHUP)
                process_ids.append(int(folder.name))
            else:
                _remove_folder(folder)
    return process_ids


def _remove_folder(folder: Path) -> None:
    """Removes a process's folder, which has files and links, but not what the links name."""
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
