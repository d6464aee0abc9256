"""The tests of `make test`: the unit tests, and the tests that docs/guarantees.md names."""

import re
from functools import cache

from tests.harness.project_copy import ROOT

PAGE = ROOT / "docs" / "guarantees.md"
_NAME = re.compile(r"`(tests/[^`]+\.py(?:::[^`]+)?)`")


@cache
def read_named_tests() -> dict[str, set[str]]:
    """By `file::function` or `file`: the parameters that the page names, such as `storing`; the empty text stands for
    all.
    """
    named: dict[str, set[str]] = {}
    for name in _NAME.findall(PAGE.read_text()):
        function, _, value = name.rstrip("]").partition("[")
        named.setdefault(function, set()).add(value)
    return named


def is_core(node_id: str) -> bool:
    """Whether `make test` runs a test, by pytest's id."""
    function = node_id.partition("[")[0]
    file = function.partition("::")[0]
    named = read_named_tests()
    is_one = any(is_named(node_id, name, value) for name in (file, function) for value in named.get(name, ()))
    return is_one or function.startswith("tests/unit/")


def is_named(node_id: str, name: str, value: str) -> bool:
    """Whether the page names a test, by pytest's id, as `name` (a file or function) and a parameter (empty: each).

    A server's version may precede the parameters of the id.
    """
    function, _, parameters = node_id.removesuffix("]").partition("[")
    return name in (function, function.partition("::")[0]) and (
        value in ("", parameters) or parameters.endswith(f"-{value}")
    )
