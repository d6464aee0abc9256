"""Macros of the project called as functions, without dbt."""

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from jinja2 import Environment

MACROS = Path(__file__).parents[2] / "macros"


class Macros:
    """The macros of some files, as what they call `tidemark`."""

    def __init__(self, *files: str, **context: Any) -> None:
        """files: below `macros`, without their ending.

        context: what these macros take from dbt, as `run_query`; without any they only work on texts.
        """
        environment = Environment(autoescape=False, extensions=["jinja2.ext.do"])
        environment.globals |= {"tidemark": self, "return": _give, "modules": SimpleNamespace(re=re)} | context
        self._macros: dict[str, Callable[..., str]] = {}
        for file in files:
            # Jinja keeps names that begin with _ to itself.
            text = re.sub(r"(\{%-? macro )", r"\1its_", (MACROS / f"{file}.sql").read_text())
            self._macros |= vars(environment.from_string(text).module)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            try:
                return str(self._macros[f"its_{name}"](*arguments))
            except _Given as given:
                return given.args[0]

        return call


class _Given(Exception):
    """What a macro returns."""


def _give(value: Any) -> None:
    raise _Given(value)
