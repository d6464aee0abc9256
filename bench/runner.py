"""Runs contestants in turns, each in its own process, so that other load on the machine affects all of them.

A contestant is a generator function: the code before its first `yield` is preparation, each step is one `Run`. Started
as `python -m bench.runner MODULE:FUNCTION JSON`, it runs once for each line it reads.
"""

import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from types import TracebackType
from typing import Any

from typing_extensions import Self

from bench.resource_usage import Run


@dataclass(frozen=True)
class Side:
    """A contestant: `module:function` of its generator, and the arguments."""

    function: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


class ContestantFailed(Exception):
    """A contestant's process ended; the message has the end of its output."""


class Contestant:
    """The process of a contestant."""

    def __init__(self, side: Side) -> None:
        self._side = side
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # closed with this
        command = [sys.executable, "-m", "bench.runner", side.function, json.dumps(side.arguments)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.communicate()
        self._errors.close()

    def run(self) -> Run:
        """Does one run. Raises ContestantFailed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("run\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            self._errors.seek(0)
            output = self._errors.read().decode(errors="replace")
            raise ContestantFailed(f"{self._side.function} failed:\n{output[-4000:]}")
        return Run(**json.loads(line))


def run_in_turns(sides: Mapping[str, Side], runs: int, warm_ups: int = 1) -> dict[str, list[Run]]:
    """The measured runs of each side: `runs` in turns, after `warm_ups` that are not measured."""
    with ExitStack() as stack:
        contestants = {name: stack.enter_context(Contestant(side)) for name, side in sides.items()}
        for _ in range(warm_ups):
            for contestant in contestants.values():
                contestant.run()
        measured: dict[str, list[Run]] = {name: [] for name in sides}
        for _ in range(runs):
            for name, contestant in contestants.items():
                measured[name].append(contestant.run())
    return measured


def main() -> None:
    """See the module. Output of the contestant, or of its JVM, goes to stderr, not into the answer."""
    module, _, function = sys.argv[1].partition(":")
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)
        turns = getattr(importlib.import_module(module), function)(**json.loads(sys.argv[2]))
        for _ in sys.stdin:
            print(json.dumps(asdict(next(turns))), file=answers, flush=True)
        turns.close()


if __name__ == "__main__":
    main()
