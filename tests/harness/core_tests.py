"""The tests of `make test`: the unit tests, and the tests that docs/guarantees.md names."""

import re
from functools import cache

from tests.harness.project_copy import ROOT

PAGE = ROOT / "docs" / "guarantees.md"
_NAME = re.compile(r"`(tests/[^`]+::[^`]+)`")


@cache
def read_named_tests() -> dict[str, set[str]]:
    """By `file::function`: the parameters that the page names, such as `storing`; the empty text stands for all."""
    named: dict[str, set[str]] = {}
    for name in _NAME.findall(PAGE.read_text()):
        function, _, value = name.rstrip("]").partition("[")
        named.setdefault(function, set()).add(value)
    return named


def is_core(node_id: str) -> bool:
    """Whether `make test` runs a test, by pytest's id."""
    function = node_id.partition("[")[0]
    named = any(is_named(node_id, function, value) for value in read_named_tests().get(function, set()))
    return named or function.startswith("tests/unit/")


def is_named(node_id: str, function: str, value: str) -> bool:
    """Whether a test, by pytest's id, is the one that the page names by a function and a parameter (empty: each).

    A server's version may precede the parameters of the id.
    """
    name, _, parameters = node_id.removesuffix("]").partition("[")
    return name == function and (value in ("", parameters) or parameters.endswith(f"-{value}"))
