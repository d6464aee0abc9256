"""A disk that can be filled and made read-only while processes write to it.

A tmpfs in a mount namespace of its own, if the machine permits that; else file size limits of the processes.
"""

import os
import resource
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

import psutil


class Disk(Protocol):
    """command: the prefix of each command that uses the disk. folder: the disk's path for such commands. outside: its
    path for the test.
    """

    command: Sequence[str]
    folder: Path
    outside: Path

    def fill(self) -> None:
        """Leave no byte free."""

    def free(self) -> None:
        """Free the space again."""

    def set_read_only(self, read_only: bool) -> None:
        """Refuse, or permit again, to open files for writing."""


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[Disk]:
    """A disk at `folder`, an empty folder, while the context is open."""
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    mount = f'mount -t tmpfs -o size={megabytes}m none "$0" && echo ready && exec sleep infinity'
    command = ["unshare", *user, "--mount", "sh", "-c", mount, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as mount_process:
        try:
            assert mount_process.stdout is not None
            yield _Tmpfs(folder, mount_process.pid) if mount_process.stdout.readline() == "ready\n" else _Limits(folder)
        finally:
            mount_process.kill()


class _Tmpfs:
    def __init__(self, folder: Path, mount_process: int) -> None:
        enter = ["--mount"] if os.geteuid() == 0 else ["--user", "--preserve-credentials", "--mount"]
        self._enter = ("nsenter", f"--target={mount_process}", *enter)
        self.command: Sequence[str] = (*self._enter, "env", f"--chdir={folder}")
        self.folder = folder
        self.outside = Path(f"/proc/{mount_process}/root{folder}")

    def fill(self) -> None:
        with suppress(OSError), (self.outside / "filler").open("wb", buffering=0) as filler:
            while filler.write(bytes(1 << 16)):
                pass

    def free(self) -> None:
        (self.outside / "filler").unlink()

    def set_read_only(self, read_only: bool) -> None:
        # A disk with files open for writing can't be remounted read-only, so a read-only bind mount covers it.
        script = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0"' if read_only else 'umount --lazy "$0"'
        subprocess.run([*self._enter, "sh", "-c", script, str(self.folder)], check=True)


class _Limits:
    def __init__(self, folder: Path) -> None:
        self.command: Sequence[str] = ("env", f"--chdir={folder}")
        self.folder = self.outside = folder

    def fill(self) -> None:
        self._limit(0)

    def free(self) -> None:
        self._limit(resource.RLIM_INFINITY)

    def set_read_only(self, read_only: bool) -> None:
        self._limit(0 if read_only else resource.RLIM_INFINITY)

    @staticmethod
    def _limit(size: int) -> None:
        for process in psutil.Process().children(recursive=True):
            if process.name().startswith(("python", "java")):
                _, hard_limit = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
                resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (size, hard_limit))
