"""Lints the models that README.md and docs/ show as the project's own: `python scripts/lint_samples.py FILE...`.

A sample is an indented block, or one fenced as sql, that contains Jinja's braces; other blocks are not models.
"""

import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

from sqlfluff.core import FluffConfig, Linter

_FENCE = re.compile(r"^( *)```(\w*)")
_INDENT = re.compile(r"( {4,})\S")


def samples(text: str) -> Iterator[tuple[int, str]]:
    """The models in a page, as (number of the first line, from 1; text)."""
    for first, language, block in _blocks(text.splitlines()):
        # `snapshot` is a tag of dbt, unknown to Jinja.
        if language in {"", "sql"} and "{{" in block and "{% snapshot" not in block:
            yield first, block


def _blocks(lines: list[str]) -> Iterator[tuple[int, str, str]]:
    """The blocks of code in a page, as (number of the first line, language, text without its indentation)."""
    number = 0
    while number < len(lines):
        first = number
        if fence := _FENCE.match(lines[number]):
            number += 1
            while number < len(lines) and not lines[number].startswith(f"{fence[1]}```"):
                number += 1
            yield first + 2, fence[2], _dedented(lines[first + 1 : number])
        elif (indent := _INDENT.match(lines[number])) and not (number and lines[number - 1].strip()):
            while number < len(lines) and (lines[number].startswith(indent[1]) or not lines[number].strip()):
                number += 1
            yield first + 1, "", _dedented(lines[first:number])
            continue
        number += 1


def _dedented(lines: list[str]) -> str:
    return textwrap.dedent("\n".join(lines)).strip("\n") + "\n"


def problems(page: str, text: str, linter: Linter) -> Iterator[str]:
    """The problems of the models in a page, a line for each."""
    for first, sample in samples(text):
        for found in linter.lint_string(sample, fname=page).get_violations():
            yield f"{page}:{first + found.line_no - 1}: {found.rule_code()} {found.desc()}"


def main() -> None:
    """Prints the problems; exit code 1 if there are any."""
    linter = Linter(config=FluffConfig.from_root())
    lines = [line for page in sys.argv[1:] for line in problems(page, Path(page).read_text(), linter)]
    print(*lines, sep="\n", end="\n" if lines else "")
    sys.exit(bool(lines))


if __name__ == "__main__":
    main()
