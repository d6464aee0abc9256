"""`make mutants`: inserts each fault of the list into a scratch copy and runs the tests that should detect it.

Prints the result of each. Exit code 1 if a fault survived, or if the list is stale.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from tests.mutants.faults import Fault, Stale, chosen, read

ROOT = Path(__file__).parents[2]
# A fault may let a test wait forever.
TIMEOUT_SECONDS = 600
# A test's parameters may be long texts.
LONGEST_NAME = 150
_FAILED = re.compile(r"^FAILED (\S.*?)(?: - .*)?$", re.MULTILINE)


@dataclass(frozen=True)
class Outcome:
    """The result of a test run. failed: the first failed test; empty if all passed. problem: why the tests could not
    be run.
    """

    failed: str = ""
    problem: str = ""


def outcome(code: int, output: str) -> Outcome:
    """The outcome by pytest's output and exit code, 0 for passed and 1 for failed."""
    match = _FAILED.search(output)
    if code == 1 and match:
        return Outcome(failed=match[1])
    if code == 0:
        return Outcome()
    return Outcome(problem=f"pytest ended with {code}: {' '.join(output.split())[-500:]}")


def copy_checkout(folder: Path) -> None:
    """Copies the files that git tracks or would add, as they are now."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name, follow_symlinks=False)


def run_tests(folder: Path, tests: Sequence[str]) -> Outcome:
    """Runs tests in a copy until one fails; without names: all of `make test`."""
    # Compiled files have a resolution of seconds: a file that changes twice within a second would not be compiled
    # again.
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    options = ["-x", "-q", "-rf", "-m", "core", "-p", "no:cacheprovider", "--durations=0"]
    limits = [f"--timeout={TIMEOUT_SECONDS}", "-o", "timeout_method=signal"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *limits, *tests],
        cwd=folder,
        env=environment,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return outcome(done.returncode, done.stdout)


def stale(faults: Sequence[Fault]) -> list[str]:
    """The errors in the lines of the list."""
    wrong = []
    for fault in faults:
        try:
            fault.applied((ROOT / fault.file).read_text())
        except (Stale, OSError) as error:
            wrong.append(str(error))
    return wrong


def detects(folder: Path, fault: Fault, *, all_tests: bool) -> bool:
    """Inserts a fault, runs its tests, removes it again; prints and returns whether a test detected it."""
    file = folder / fault.file
    text = file.read_text()
    began = time.monotonic()
    file.write_text(fault.applied(text))
    try:
        result = run_tests(folder, fault.tests)
        if all_tests and not result.failed and not result.problem:
            result = run_tests(folder, [])
    finally:
        file.write_text(text)
    name = result.failed if len(result.failed) <= LONGEST_NAME else result.failed.partition("[")[0]
    line = f"caught by {name}" if name else result.problem or "SURVIVED"
    click.echo(f"{fault.rule:4} {fault.id}: {line} ({time.monotonic() - began:.0f} s)")
    return bool(result.failed)


@click.command()
@click.argument("only", nargs=-1)
@click.option("--all-tests", is_flag=True, help="Where the named tests pass, run all of `make test`.")
@click.option("--trust", is_flag=True, help="Don't run the named tests without a fault first.")
def main(only: tuple[str, ...], all_tests: bool, trust: bool) -> None:
    """Inserts the faults of tests/mutants/faults.yml (ONLY: ids or rules, such as P1), one at a time."""
    faults = chosen(read(), only)
    if wrong := stale(faults):
        raise click.ClickException("the list is stale: " + "\n".join(wrong))
    if not faults:
        raise click.UsageError("no fault has this id or rule")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        copy_checkout(folder)
        if not trust:
            # A test that fails without a fault detects none.
            result = run_tests(folder, list(dict.fromkeys(test for fault in faults for test in fault.tests)))
            if result.failed or result.problem:
                raise click.ClickException(f"without a fault: {result.failed or result.problem}")
        survived = [fault.id for fault in faults if not detects(folder, fault, all_tests=all_tests)]
    click.echo(f"{len(faults)} faults, {len(survived)} survived" + "".join(f"\n  {fault_id}" for fault_id in survived))
    sys.exit(bool(survived))


if __name__ == "__main__":
    main()
