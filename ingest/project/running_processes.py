"""The `tidemark run` processes of a project, by files that they keep locked: a killed process leaves no lock.

Several machines or containers may share the project's folder. A process id is valid only in its own.
"""

import fcntl
import os
import platform
import shutil
import signal
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_REGISTRY = Path(".tidemark/run")


@contextmanager
def register_process(project: Path) -> Iterator[Path]:
    """Registers this process while the context is open. Yields a folder for its own files, which is removed."""
    folder = project / _REGISTRY / uuid.uuid4().hex
    unlocked_folder = folder.with_name(f".{folder.name}")
    unlocked_folder.mkdir(parents=True)
    (unlocked_folder / "process").write_text(f"{os.getpid()} {_read_machine()}")
    with (unlocked_folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        unlocked_folder.rename(folder)  # another process removes a folder that is not locked
        try:
            yield folder
        finally:
            shutil.rmtree(folder)


def signal_processes(project: Path) -> tuple[list[int], list[str]]:
    """Sends SIGHUP to the project's processes on this machine; returns their ids, and the names of other machines and
    containers with such processes. Removes the folders that killed processes left.
    """
    process_ids, machines = [], set()
    for folder in sorted((project / _REGISTRY).glob("[!.]*")):
        with suppress(OSError), (folder / "lock").open("r+") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                process_id, _, machine = (folder / "process").read_text().partition(" ")
                if machine == _read_machine():
                    os.kill(int(process_id), signal.SIGHUP)
                    process_ids.append(int(process_id))
                else:
                    machines.add(machine.split()[0])
            else:
                shutil.rmtree(folder)
    return sorted(process_ids), sorted(machines)


def _read_machine() -> str:
    """The machine's name, and where there is one, the namespace of process ids: containers have their own."""
    namespace = ""
    with suppress(OSError):
        namespace = str(Path("/proc/self/ns/pid").readlink())
    return f"{platform.node()} {namespace}"
