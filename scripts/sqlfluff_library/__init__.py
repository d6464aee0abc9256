"""dbt's context while parsing, for sqlfluff's jinja templater.

`execute` is false and no relation exists, as while dbt parses: no macro queries Spark.
`tidemark.NAME(...)` is the macro of that name in `macros/`.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from jinja2 import pass_context
from jinja2.runtime import Context
from sqlfluff.core.templaters.builtins.dbt import DbtMacroWrapper, RelationEmulator

from dbt.adapters.tidemark.lake_statements import NoLake
from dbt.adapters.tidemark.project_graph import ProjectGraph
from dbt.adapters.tidemark.run_state import RunState


class _Package:
    """The macros under the package's name; by item, because Jinja's sandbox hides attributes like `_x`."""

    def __getitem__(self, name: str) -> Callable[..., Any]:
        @pass_context
        def call(context: Context, *arguments: Any, **options: Any) -> Any:
            # A macro of the same file is in the context unwrapped: its `return` would end the caller.
            macro = context.parent.get(name) or DbtMacroWrapper(context.resolve(name))
            return macro(*arguments, **options)

        return call


def _make_relation(**options: Any) -> RelationEmulator:
    return RelationEmulator(f"{options.get('schema', 'core')}.{options.get('identifier', 'table')}")


def run_query(query: str) -> list[Any]:  # noqa: ARG001
    """No query returns a row."""
    return []


def partition_cols(label: str) -> str:
    """The clause that dbt-spark generates from `partition_by`."""
    return f"{label} (source)"


tidemark = _Package()
execute = False
graph: dict[str, Any] = {}
selected_resources: list[str] = []
model = SimpleNamespace(unique_id="model.tidemark.linted")
adapter = SimpleNamespace(
    run=lambda *_: RunState(NoLake(), ProjectGraph({}, ())),
    log_sample=lambda: 1,
    log_slices=lambda _: {},
)
flags = SimpleNamespace(WHICH="run")
target = SimpleNamespace(type="tidemark")
api = SimpleNamespace(Relation=SimpleNamespace(create=_make_relation))
