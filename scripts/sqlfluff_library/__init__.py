"""What sqlfluff's jinja templater doesn't know of dbt: the context in which dbt parses.

`execute` is false and no relation exists, as while dbt parses, so macros that would ask Spark take
their other way; `tidemark.NAME(...)` is our own macro of that name, from `macros/`.
"""

import hashlib
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from jinja2 import pass_context
from jinja2.runtime import Context
from sqlfluff.core.templaters.builtins.dbt import DbtMacroWrapper, RelationEmulator


class _Package:
    """Our macros by the package's name; by item, as Jinja's sandbox hides attributes like `_x`."""

    def __getitem__(self, name: str) -> Callable[..., Any]:
        @pass_context
        def call(context: Context, *arguments: Any, **named: Any) -> Any:
            # A macro of the same file stands there bare, and its `return` would end the caller.
            macro = context.parent.get(name) or DbtMacroWrapper(context.resolve(name))
            return macro(*arguments, **named)

        return call


def _relation(**named: Any) -> RelationEmulator:
    return RelationEmulator(f"{named.get('schema', 'core')}.{named.get('identifier', 'table')}")


def load_relation(relation: Any) -> None:
    """No relation exists yet."""


def run_query(query: str) -> list[Any]:  # noqa: ARG001
    """No query brings a row."""
    return []


def local_md5(text: str) -> str:
    """As dbt's."""
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def partition_cols(label: str) -> str:
    """The clause that dbt-spark makes of `partition_by`."""
    return f"{label} (source)"


tidemark = _Package()
execute = False
selected_resources: list[str] = []
invocation_id = "00000000-0000-0000-0000-000000000000"
modules = SimpleNamespace(re=re)
api = SimpleNamespace(Relation=SimpleNamespace(create=_relation))
