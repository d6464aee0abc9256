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
    for first_line, language, block in _find_blocks(text.splitlines()):
        # `snapshot` is a tag of dbt, unknown to Jinja.
        if language in {"", "sql"} and "{{" in block and "{% snapshot" not in block:
            yield first_line, block


def _find_blocks(lines: list[str]) -> Iterator[tuple[int, str, str]]:
    """The blocks of code in a page, as (number of the first line, language, text without its indentation)."""
    index = 0
    while index < len(lines):
        first_index = index
        if fence := _FENCE.match(lines[index]):
            index += 1
            while index < len(lines) and not lines[index].startswith(f"{fence[1]}```"):
                index += 1
            yield first_index + 2, fence[2], _dedent(lines[first_index + 1 : index])
        elif (indent := _INDENT.match(lines[index])) and not (index and lines[index - 1].strip()):
            while index < len(lines) and (lines[index].startswith(indent[1]) or not lines[index].strip()):
                index += 1
            yield first_index + 1, "", _dedent(lines[first_index:index])
            continue
        index += 1


def _dedent(lines: list[str]) -> str:
    return textwrap.dedent("\n".join(lines)).strip("\n") + "\n"


def problems(page: str, text: str, linter: Linter) -> Iterator[str]:
    """The problems of the models in a page, a line for each."""
    for first_line, sample in samples(text):
        for violation in linter.lint_string(sample, fname=page).get_violations():
            yield f"{page}:{first_line + violation.line_no - 1}: {violation.rule_code()} {violation.desc()}"


def main() -> None:
    """Prints the problems; exit code 1 if there are any."""
    linter = Linter(config=FluffConfig.from_root())
    lines = [line for page in sys.argv[1:] for line in problems(page, Path(page).read_text(), linter)]
    print(*lines, sep="\n", end="\n" if lines else "")
    sys.exit(bool(lines))


if __name__ == "__main__":
    main()
