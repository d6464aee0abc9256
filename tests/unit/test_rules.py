"""docs/rules.md has each rule that code, tests and faults name by its id."""

import re

import pytest

from tests.harness.project_copy import ROOT
from tests.mutants import faults

RULES = set(re.findall(r"^- \*\*([A-Z]\d+)\.\*\*", (ROOT / "docs/rules.md").read_text(), re.MULTILINE))


def test_the_rule_of_each_fault_is_on_the_page() -> None:
    assert {fault.rule for fault in faults.read()} <= RULES


@pytest.mark.parametrize("folder", ["ingest", "dbt", "macros", "models", "tests"])
def test_each_rule_that_a_file_names_is_on_the_page(folder: str) -> None:
    for file in (path for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".sql", ".yml")):
        for named in re.findall(r"\brules? ([A-Z]\d+(?:(?:, | and | to )[A-Z]\d+)*)", file.read_text()):
            assert set(re.findall(r"[A-Z]\d+", named)) <= RULES, file
