"""The faults that `make mutants` puts in, one at a time: a line of a file, and what it becomes."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import yaml

LIST = Path(__file__).with_name("faults.yml")


class Stale(Exception):
    """The line of a fault is not there, or is there more than once."""


@dataclass(frozen=True)
class Fault:
    """rule: of the design, `P1`. breaks: what holds without the fault. line: as it stands in `file`, without its
    indentation. becomes: what is put in its place. tests: those of `make test` that notice it, the cheap ones first.
    """

    id: str
    rule: str
    breaks: str
    file: str
    line: str
    becomes: str
    tests: tuple[str, ...]

    def applied(self, text: str) -> str:
        """`text` of the file with the fault in it. Raises Stale."""
        lines = text.split("\n")
        found = [number for number, line in enumerate(lines) if line.strip() == self.line]
        if len(found) != 1:
            raise Stale(f"{self.id}: in {self.file} the line is found {len(found)} times: {self.line}")
        (at,) = found
        lines[at] = lines[at].replace(self.line, self.becomes)
        return "\n".join(lines)


def read(path: Path = LIST) -> list[Fault]:
    """All faults, in the order of the list."""
    return [Fault(**{**each, "tests": tuple(each["tests"])}) for each in yaml.safe_load(path.read_text())]


def chosen(faults: Iterable[Fault], only: Iterable[str]) -> list[Fault]:
    """Those whose id or rule is named; all, if none is."""
    names = set(only)
    return [fault for fault in faults if not names or names & {fault.id, fault.rule}]
