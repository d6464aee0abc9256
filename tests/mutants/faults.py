"""The faults that `make mutants` inserts, one at a time: a line of a file, and its replacement."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import yaml

LIST = Path(__file__).with_name("faults.yml")


class Stale(Exception):
    """The line of a fault is missing, or occurs more than once."""


@dataclass(frozen=True)
class Fault:
    """rule: of the design, such as `P1`. breaks: what holds without the fault. line: the line in `file`, without its
    indentation. becomes: its replacement. tests: the tests of `make test` that detect it, fast ones first.
    """

    id: str
    rule: str
    breaks: str
    file: str
    line: str
    becomes: str
    tests: tuple[str, ...]

    def applied(self, text: str) -> str:
        """The `text` of the file with the fault. Raises Stale."""
        lines = text.split("\n")
        matches = [number for number, line in enumerate(lines) if line.strip() == self.line]
        if len(matches) != 1:
            raise Stale(f"{self.id}: in {self.file} the line is found {len(matches)} times: {self.line}")
        (line_number,) = matches
        lines[line_number] = lines[line_number].replace(self.line, self.becomes)
        return "\n".join(lines)


def read(path: Path = LIST) -> list[Fault]:
    """All faults, in the order of the list."""
    return [Fault(**{**entry, "tests": tuple(entry["tests"])}) for entry in yaml.safe_load(path.read_text())]


def chosen(faults: Iterable[Fault], only: Iterable[str]) -> list[Fault]:
    """The faults with one of these ids or rules; without any, all faults."""
    names = set(only)
    return [fault for fault in faults if not names or names & {fault.id, fault.rule}]
