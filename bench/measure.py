"""One timed run: wall clock, CPU seconds and peak memory of each process that had a part in it.

`stopwatch` measures this process and those beneath it (Spark's JVM, its Python workers), which live longer than the
run; `program` measures one that is started for it.
"""

import os
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

MEBIBYTE = 1 << 20
# Of Linux: writing it to /proc/PID/clear_refs begins the peak anew.
_RESET_PEAK = "5"


@dataclass
class Run:
    """amount: of what the benchmark counts. seconds: wall clock. cpu: seconds by process; peak: MiB by process, the
    largest of those of one name. stages: seconds, or counts, of parts of it.
    """

    amount: float = 0.0
    seconds: float = 0.0
    cpu: dict[str, float] = field(default_factory=dict)
    peak: dict[str, float] = field(default_factory=dict)
    stages: dict[str, float] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        """Amount per second."""
        return self.amount / self.seconds


@contextmanager
def stopwatch() -> Iterator[Run]:
    """Measures what happens in it; the body sets `amount`."""
    run = Run()
    for process in _family():
        with suppress(OSError):
            Path(f"/proc/{process.pid}/clear_refs").write_text(_RESET_PEAK)
    before = _cpu()
    began = time.perf_counter()
    yield run
    run.seconds = time.perf_counter() - began
    after = _cpu()
    run.cpu = {name: round(after[name] - before.get(name, 0.0), 2) for name in after}
    for process in _family():
        with suppress(psutil.Error, OSError):
            if peak := _peak(process.pid):
                name = _name(process)
                run.peak[name] = max(run.peak.get(name, 0.0), peak)


def program(name: str, command: Sequence[str]) -> Run:
    """Runs a program to its end. Raises CalledProcessError with what it said if it fails."""
    began = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        said = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, list(command), stderr=said)
    return Run(
        seconds=time.perf_counter() - began,
        cpu={name: round(usage.ru_utime + usage.ru_stime, 2)},
        peak={name: usage.ru_maxrss / 1024},
    )


def _family() -> list[psutil.Process]:
    ours = psutil.Process()
    return [ours, *ours.children(recursive=True)]


def _name(process: psutil.Process) -> str:
    """`python` is the process that runs the contestant; Python beneath it are Spark's workers."""
    if process.pid == os.getpid():
        return "python"
    found = process.name()
    return "python worker" if found.startswith("python") else str(found)


def _cpu() -> dict[str, float]:
    """CPU seconds by name, with those of processes that have ended."""
    found: defaultdict[str, float] = defaultdict(float)
    for process in _family():
        with suppress(psutil.Error):
            times = process.cpu_times()
            found[_name(process)] += times.user + times.system + times.children_user + times.children_system
    return found


def _peak(pid: int) -> float:
    """The largest resident size since the peak began anew, in MiB."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    found = dict(line.partition(":")[::2] for line in lines)
    return int(found.get("VmHWM", "0").split()[0]) / 1024  # 0: it has just ended
