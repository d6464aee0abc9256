"""`make mutants`: puts each fault of the list into a scratch copy and runs the tests that should notice it.

Says which did. Exit code 1 if a fault survived, or if the list is stale.
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
# A fault may have a test wait for what never comes.
TIMEOUT_SECONDS = 600
# A test's parameters may be whole messages.
LONGEST_NAME = 150
_FAILED = re.compile(r"^FAILED (\S.*?)(?: - .*)?$", re.MULTILINE)


@dataclass(frozen=True)
class Outcome:
    """What tests said. failed: the test that failed first; empty if all passed. problem: why they could not be run."""

    failed: str = ""
    problem: str = ""


def outcome(code: int, output: str) -> Outcome:
    """The outcome of pytest by its exit code, 0 for passed and 1 for failed, and by its output."""
    found = _FAILED.search(output)
    if code == 1 and found:
        return Outcome(failed=found[1])
    if code == 0:
        return Outcome()
    return Outcome(problem=f"pytest ended with {code}: {' '.join(output.split())[-500:]}")


def copy_checkout(folder: Path) -> None:
    """The files that git knows, or would add, as they are now."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name, follow_symlinks=False)


def run_tests(folder: Path, tests: Sequence[str]) -> Outcome:
    """Runs tests in a copy until one fails; none are named: all of `make test`."""
    # A file that changes twice within a second would be taken for the same by its compiled form.
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    given = ["-x", "-q", "-rf", "-m", "not slow", "-p", "no:cacheprovider", "--durations=0"]
    limits = [f"--timeout={TIMEOUT_SECONDS}", "-o", "timeout_method=signal"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *given, *limits, *tests],
        cwd=folder,
        env=environment,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return outcome(done.returncode, done.stdout)


def stale(faults: Sequence[Fault]) -> list[str]:
    """What is wrong with the lines of the list."""
    wrong = []
    for fault in faults:
        try:
            fault.applied((ROOT / fault.file).read_text())
        except (Stale, OSError) as error:
            wrong.append(str(error))
    return wrong


def tried(folder: Path, fault: Fault, *, all_tests: bool) -> bool:
    """Puts a fault in, runs its tests, takes it out again; whether a test noticed it. Says so in a line."""
    file = folder / fault.file
    text = file.read_text()
    began = time.monotonic()
    file.write_text(fault.applied(text))
    try:
        found = run_tests(folder, fault.tests)
        if all_tests and not found.failed and not found.problem:
            found = run_tests(folder, [])
    finally:
        file.write_text(text)
    name = found.failed if len(found.failed) <= LONGEST_NAME else found.failed.partition("[")[0]
    said = f"caught by {name}" if name else found.problem or "SURVIVED"
    click.echo(f"{fault.rule:4} {fault.id}: {said} ({time.monotonic() - began:.0f} s)")
    return bool(found.failed)


@click.command()
@click.argument("only", nargs=-1)
@click.option("--all-tests", is_flag=True, help="Where the named tests pass, run all of `make test`.")
@click.option("--trust", is_flag=True, help="Don't run the named tests without a fault first.")
def main(only: tuple[str, ...], all_tests: bool, trust: bool) -> None:
    """Put in the faults of tests/mutants/faults.yml (ONLY: ids or rules, such as P1), one at a time."""
    faults = chosen(read(), only)
    if wrong := stale(faults):
        raise click.ClickException("the list is stale: " + "\n".join(wrong))
    if not faults:
        raise click.UsageError("no fault has this id or rule")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        copy_checkout(folder)
        if not trust:
            # A test that fails anyway notices nothing.
            found = run_tests(folder, list(dict.fromkeys(test for fault in faults for test in fault.tests)))
            if found.failed or found.problem:
                raise click.ClickException(f"without a fault: {found.failed or found.problem}")
        survived = [fault.id for fault in faults if not tried(folder, fault, all_tests=all_tests)]
    click.echo(f"{len(faults)} faults, {len(survived)} survived" + "".join(f"\n  {each}" for each in survived))
    sys.exit(bool(survived))


if __name__ == "__main__":
    main()
