"""The faults of `make mutants` fit the code: each line exists once, and each test is in `make test`."""

import ast
import re

import pytest

from tests.harness.core_tests import is_core
from tests.harness.project_copy import ROOT
from tests.mutants.__main__ import Outcome, outcome
from tests.mutants.faults import Fault, Stale, chosen, read

FAULTS = read()
LEAST = 30


def test_there_are_enough_faults_with_unique_ids() -> None:
    assert len(FAULTS) >= LEAST
    assert len({fault.id for fault in FAULTS}) == len(FAULTS)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.id)
def test_a_fault_fits_the_code_as_it_is(fault: Fault) -> None:
    assert re.fullmatch(r"[a-z0-9-]+", fault.id)
    assert re.fullmatch(r"[A-Z][0-9]{1,2}", fault.rule)
    assert fault.breaks.endswith(".")
    text = (ROOT / fault.file).read_text()
    changed = fault.applied(text)
    differing = [lines for lines in zip(text.split("\n"), changed.split("\n"), strict=True) if lines[0] != lines[1]]
    assert len(differing) == 1
    if fault.file.endswith(".py"):
        ast.parse(changed)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.id)
def test_the_tests_of_a_fault_are_in_make_test(fault: Fault) -> None:
    assert fault.tests
    for test in fault.tests:
        assert (ROOT / test).is_file() or is_core(test)


FAULT = Fault("x", "P1", "A rule.", "a.py", "a < b", "a <= b", ("tests/unit/test_mutants.py",))


def test_a_line_is_replaced_in_its_place() -> None:
    assert FAULT.applied("if x:\n    a < b\na < b or c\n") == "if x:\n    a <= b\na < b or c\n"


@pytest.mark.parametrize("text", ["", "a < b or c", "a < b\n  a < b\n"])
def test_a_line_that_does_not_occur_exactly_once_is_stale(text: str) -> None:
    with pytest.raises(Stale, match=r"found (0|2) times: a < b"):
        FAULT.applied(text)


@pytest.mark.parametrize(("only", "count"), [([], 2), (["P1"], 1), (["y"], 1), (["x", "y"], 2), (["P11"], 0)])
def test_faults_are_chosen_by_id_or_rule(only: list[str], count: int) -> None:
    other = Fault("y", "P2", *("",) * 4, ())
    assert len(chosen([FAULT, other], only)) == count


@pytest.mark.parametrize(
    ("code", "output", "expected"),
    [
        (0, "1 passed", Outcome()),
        (1, "FAILED tests/a.py::test_b[c d] - assert False\n1 failed", Outcome(failed="tests/a.py::test_b[c d]")),
        (1, "FAILED tests/a.py::test_b\n", Outcome(failed="tests/a.py::test_b")),
        (1, "1 error", Outcome(problem="pytest ended with 1: 1 error")),
        (2, "FAILED tests/a.py::test_b", Outcome(problem="pytest ended with 2: FAILED tests/a.py::test_b")),
        (5, "", Outcome(problem="pytest ended with 5: ")),
    ],
)
def test_only_a_failed_test_has_detected_a_fault(code: int, output: str, expected: Outcome) -> None:
    assert outcome(code, output) == expected
