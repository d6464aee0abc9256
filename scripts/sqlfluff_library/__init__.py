"""dbt's context while parsing, for sqlfluff's jinja templater.

`execute` is false and no relation exists, as while dbt parses, so macros that would query Spark do not;
`tidemark.NAME(...)` is the macro of that name in `macros/`.
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
    """The macros under the package's name; by item, because Jinja's sandbox hides attributes like `_x`."""

    def __getitem__(self, name: str) -> Callable[..., Any]:
        @pass_context
        def call(context: Context, *arguments: Any, **named: Any) -> Any:
            # A macro of the same file is in the context unwrapped: its `return` would end the caller.
            macro = context.parent.get(name) or DbtMacroWrapper(context.resolve(name))
            return macro(*arguments, **named)

        return call


def _relation(**named: Any) -> RelationEmulator:
    return RelationEmulator(f"{named.get('schema', 'core')}.{named.get('identifier', 'table')}")


def load_relation(relation: Any) -> None:
    """No relation exists yet."""


def run_query(query: str) -> list[Any]:  # noqa: ARG001
    """No query returns a row."""
    return []


def local_md5(text: str) -> str:
    """The same as dbt's."""
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def partition_cols(label: str) -> str:
    """The clause that dbt-spark generates from `partition_by`."""
    return f"{label} (source)"


tidemark = _Package()
execute = False
selected_resources: list[str] = []
invocation_id = "00000000-0000-0000-0000-000000000000"
modules = SimpleNamespace(re=re)
api = SimpleNamespace(Relation=SimpleNamespace(create=_relation))
