"""docs/guarantees.md names existing tests, which `make test` runs."""

import re
import subprocess
import sys

import pytest

from tests.harness import core_tests
from tests.harness.core_tests import PAGE, is_core
from tests.harness.project_copy import ROOT


def guarantees(text: str) -> list[tuple[str, list[str], list[str]]]:
    """(guarantee, pages that state it, its tests) of each row of the tables whose first column is `Guarantee`."""
    return [
        (cells[0], re.findall(r"\]\(([^)#]*)", cells[1]), re.findall(r"`(tests/[^`]*)`", cells[2]))
        for table in re.findall(r"^\| Guarantee \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", text, re.MULTILINE)
        for cells in ([cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines())
    ]


def test_every_named_test_is_collected_by_make_test() -> None:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "-m", "core"]
    collected = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    named = core_tests.read_named_tests()
    assert len(named) > 50
    missing = {
        f"{function}[{value}]"
        for function, values in named.items()
        for value in values
        if not any(core_tests.is_named(node_id, function, value) for node_id in collected)
    }
    assert missing == set()


def test_every_guarantee_has_a_test_and_a_page_that_states_it() -> None:
    rows = guarantees(PAGE.read_text())
    assert len(rows) > 100
    for guarantee, pages, tests in rows:
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
        ("tests/b.py::test_of_a_named_file[18]", True),
    ],
)
def test_the_page_decides_what_make_test_runs(monkeypatch: pytest.MonkeyPatch, node_id: str, expected: bool) -> None:
    named = {"tests/a.py::test_named": {""}, "tests/a.py::test_of_one": {"storing"}, "tests/b.py": {""}}
    monkeypatch.setattr(core_tests, "read_named_tests", lambda: named)
    assert is_core(node_id) is expected
