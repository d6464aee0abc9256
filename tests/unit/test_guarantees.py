"""docs/guarantees.md names existing tests, which `make test` runs."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.harness import core_tests
from tests.harness.core_tests import PAGE, is_core
from tests.harness.project_copy import ROOT


def guarantees(text: str) -> list[tuple[str, list[str], list[str]]]:
    """(guarantee, pages that state it, its tests) of each row of the page's three-column tables."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    return [
        (cells[0], re.findall(r"\]\(([^)#]*)", cells[1]), re.findall(r"`(tests/[^`]*)`", cells[2]))
        for cells in rows
        if len(cells) == 3 and "tests/" in cells[2]
    ]


@cache
def read_tests(file: Path) -> dict[str, set[str]]:
    """The test functions of a file, with the constants in their decorators: the parameters that they run with."""
    return {
        node.name: {str(c.value) for d in node.decorator_list for c in ast.walk(d) if isinstance(c, ast.Constant)}
        for node in ast.parse(file.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def test_every_named_test_exists() -> None:
    named = core_tests.read_named_tests()
    assert len(named) > 50
    for function, values in named.items():
        file, _, name = function.partition("::")
        assert (ROOT / file).is_file(), file
        assert name in read_tests(ROOT / file), function
        assert values - {""} <= read_tests(ROOT / file)[name], function


def test_every_guarantee_has_a_test_and_a_page_that_states_it() -> None:
    for guarantee, pages, tests in guarantees(PAGE.read_text()):
        assert guarantee
        assert pages, guarantee
        assert tests, guarantee
        assert [page for page in pages if not (PAGE.parent / page).exists()] == [], guarantee


def test_make_test_runs_the_core() -> None:
    assert "$(PYTEST) $(PARALLEL) -m core" in (ROOT / "Makefile").read_text()


@pytest.mark.parametrize(
    ("node_id", "expected"),
    [
        ("tests/unit/test_guarantees.py::test_anything", True),
        ("tests/a.py::test_named[18]", True),
        ("tests/a.py::test_named", True),
        ("tests/a.py::test_of_one[18-storing]", True),
        ("tests/a.py::test_of_one[storing]", True),
        ("tests/a.py::test_of_one[18-committing]", False),
        ("tests/a.py::test_of_one[18]", False),
        ("tests/a.py::test_other[18]", False),
    ],
)
def test_the_page_decides_what_make_test_runs(monkeypatch: pytest.MonkeyPatch, node_id: str, expected: bool) -> None:
    named = {"tests/a.py::test_named": {""}, "tests/a.py::test_of_one": {"storing"}}
    monkeypatch.setattr(core_tests, "read_named_tests", lambda: named)
    assert is_core(node_id) is expected
