"""docs/guarantees.md names existing tests of `make test`; every excluded test has a reason."""

import re
from pathlib import Path

import pytest

from tests.unit import marks
from tests.unit.marks import ROOT

PAGE = ROOT / "docs" / "guarantees.md"


def guarantees(text: str) -> list[tuple[str, list[str], list[str]]]:
    """(guarantee, pages that state it, its tests) of each row of the page's three-column tables."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    return [
        (cells[0], re.findall(r"\]\(([^)#]*)", cells[1]), re.findall(r"`(tests/[^`]*)`", cells[2]))
        for cells in rows
        if len(cells) == 3 and "tests/" in cells[2]
    ]


def test_every_guarantee_has_a_test_in_make_test() -> None:
    rows = guarantees(PAGE.read_text())
    assert len(rows) > 50
    assert [problem for _, _, tests in rows for named in tests if (problem := marks.problem(named))] == []
    assert '$(PYTEST) $(PARALLEL) -m "not slow"' in (ROOT / "Makefile").read_text()


def test_every_guarantee_says_where_it_is_stated() -> None:
    for guarantee, pages, tests in guarantees(PAGE.read_text()):
        assert guarantee
        assert pages, guarantee
        assert tests, guarantee
        assert [page for page in pages if not (PAGE.parent / page).exists()] == [], guarantee


def test_no_test_is_slow_without_a_reason() -> None:
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    assert [f"{file.relative_to(ROOT)}:{line}" for file in files for line in marks.read(file).unreasoned] == []


SAMPLE = """
import pytest
_LATE = pytest.mark.slow(reason="minutes")
def test_plain(): ...
@pytest.mark.slow(reason="minutes")
def test_late(): ...
@_LATE
def test_later(): ...
@pytest.mark.parametrize("place", ["quick", pytest.param("late", marks=_LATE)])
def test_some(place): ...
@pytest.mark.parametrize("n", [1, *(pytest.param(n, marks=pytest.mark.slow(reason="no")) for n in (2, 3))])
def test_numbers(n): ...
"""


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ("test_plain", None),
        ("test_plai", "does not exist"),
        ("test_late", "is marked slow"),
        ("test_later", "is marked slow"),
        ("test_some", "is marked slow"),
        ("test_some[quick]", None),
        ("test_some[late]", "is marked slow"),
        ("test_some[other]", "does not exist"),
        ("test_numbers[1]", None),
        ("test_numbers[2]", "is marked slow"),
    ],
)
def test_a_missing_or_excluded_test_is_reported(tmp_path: Path, named: str, expected: str | None) -> None:
    (tmp_path / "sample.py").write_text(SAMPLE)
    actual = marks.problem(f"sample.py::{named}", tmp_path)
    assert expected in actual if expected and actual else actual == expected


@pytest.mark.parametrize(
    "mark", ["pytest.mark.slow", "pytest.mark.slow()", "pytest.mark.slow(reason='')", "[pytest.mark.slow]"]
)
def test_a_mark_without_a_reason_is_reported(tmp_path: Path, mark: str) -> None:
    file = tmp_path / "sample.py"
    file.write_text(f"import pytest\n\npytestmark = {mark}\ndef test_it(): ...\n")
    marks_of_file = marks.read(file)
    assert marks_of_file.unreasoned == [3]
    assert marks_of_file.tests["test_it"].slow
