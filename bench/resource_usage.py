"""Resource usage of a run: wall clock, CPU seconds and peak memory of each process that takes part.

`stopwatch` measures this process and its children (Spark's JVM, its Python workers), which live longer than the run;
`run_program` measures a program that is started for the run.
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
# Linux: writing this to /proc/PID/clear_refs resets the peak.
_RESET_PEAK = "5"


@dataclass
class Run:
    """A measured run. amount: rows or events. seconds: wall clock. cpu: seconds by process name. peak: MiB by process
    name, the largest of several processes. stages: seconds, or counts, of parts of the run.
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
    """Measures the body; the body sets `amount`."""
    run = Run()
    for process in _process_tree():
        with suppress(OSError):
            Path(f"/proc/{process.pid}/clear_refs").write_text(_RESET_PEAK)
    before = _cpu()
    began = time.perf_counter()
    yield run
    run.seconds = time.perf_counter() - began
    after = _cpu()
    run.cpu = {name: round(after[name] - before.get(name, 0.0), 2) for name in after}
    for process in _process_tree():
        with suppress(psutil.Error, OSError):
            if peak := _peak(process.pid):
                name = _name(process)
                run.peak[name] = max(run.peak.get(name, 0.0), peak)


def run_program(name: str, command: Sequence[str]) -> Run:
    """Runs a program to its end. Raises CalledProcessError with its error output if it fails."""
    began = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        errors = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, list(command), stderr=errors)
    return Run(
        seconds=time.perf_counter() - began,
        cpu={name: round(usage.ru_utime + usage.ru_stime, 2)},
        peak={name: usage.ru_maxrss / 1024},
    )


def _process_tree() -> list[psutil.Process]:
    process = psutil.Process()
    return [process, *process.children(recursive=True)]


def _name(process: psutil.Process) -> str:
    """`python` is the process that runs the contestant; its Python children are Spark's workers."""
    if process.pid == os.getpid():
        return "python"
    name = process.name()
    return "python worker" if name.startswith("python") else str(name)


def _cpu() -> dict[str, float]:
    """CPU seconds by process name, including ended processes."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for process in _process_tree():
        with suppress(psutil.Error):
            times = process.cpu_times()
            seconds[_name(process)] += times.user + times.system + times.children_user + times.children_system
    return seconds


def _peak(pid: int) -> float:
    """The largest resident size since the last reset, in MiB."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    status = dict(line.partition(":")[::2] for line in lines)
    return int(status.get("VmHWM", "0").split()[0]) / 1024  # 0: it has just ended
