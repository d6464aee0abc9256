"""What a run does with a definition, and the hash by which it notices that the definition has changed."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from dbt_common.exceptions import DbtRuntimeError

from dbt.adapters.tidemark.definition_settings import DefinitionSettings
from dbt.adapters.tidemark.lake_statements import describe
from dbt.adapters.tidemark.project_graph import Inputs, Node, materialization
from dbt.adapters.tidemark.releases import INVALIDATED
from dbt.adapters.tidemark.run_state import RunState
from dbt.adapters.tidemark.sql_text import normalized_sql
from dbt.adapters.tidemark.watermarks import Positions, Watermark

# Ops are numbered in slices of about this many evaluated rows, each by one task.
_ROWS_PER_OP_SLICE = 100_000
_MOST_OP_SLICES = 64


@dataclass(frozen=True)
class Definition:
    """A definition to plan. hash: of the SQL, the settings and everything that the query reads except rows. inputs: the
    source tables below it.
    """

    name: str
    hash: str
    inputs: Inputs
    evaluation: str
    view_tables: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class BucketPlan:
    """What a run does with a definition.

    scope: `changes` (the rows that changed since the watermark, which `since` has by source) or `all`. The attributes
    from `positions` on are those of the next release: a waiting definition keeps its watermark and its old hash, and is
    evaluated, as changed, when its inputs are ready. is_there: both tables exist; if one was dropped or replaced
    manually, the definition is new. is_published: the published rows are those of this definition. last_op,
    has_integer_keys: as published, see `Watermark`. changed_rows: of the inputs of a published definition, at least
    those since its watermark.
    """

    definition: Definition
    is_there: bool
    since: Mapping[str, Watermark]
    published_columns: Any
    published_view_tables: Mapping[str, str]
    is_published: bool
    is_invalidated: bool
    last_op: int | None
    has_integer_keys: bool
    positions: Positions
    definition_hash: str | None
    view_tables: Mapping[str, str]
    reason: str = "unchanged"
    evaluates: bool = False
    is_waiting: bool = False
    scope: str = "changes"
    changed_rows: int = 0

    @property
    def state(self) -> str:
        """The state, in the words of `tidemark plan`."""
        if not self.since:
            return "new"
        if self.is_waiting:
            return "waiting"
        return "unchanged" if self.is_published else "changed"

    @staticmethod
    def op_slices(input_rows: int) -> int:
        """Into how many slices the ops of this many evaluated rows are divided, to be numbered in parallel."""
        return min(_MOST_OP_SLICES, 1 + input_rows // _ROWS_PER_OP_SLICE)


def make_plan(run: RunState, definition: Definition, *, is_there: bool, full_refresh: bool) -> BucketPlan:
    """The plan of a definition in this run."""
    since = run.watermarks.get(definition.name, {}) if is_there else {}
    watermark = next(iter(since.values()), None)
    published_hash = watermark.definition_hash if watermark else None
    is_published = published_hash == definition.hash
    row_state_positions = run.positions("row_state")
    published_positions = run.published_positions(definition.name)
    plan = BucketPlan(
        definition=definition,
        is_there=is_there,
        since=since,
        published_columns=watermark.columns if watermark else [],
        published_view_tables=watermark.view_tables if watermark else {},
        is_published=is_published,
        is_invalidated=published_hash == INVALIDATED,
        last_op=watermark.last_op if watermark else None,
        has_integer_keys=bool(watermark and watermark.has_integer_keys),
        positions={
            table["source"]: row_state_positions[table["source"]]
            for table in definition.inputs
            if table["source"] in row_state_positions
        },
        definition_hash=definition.hash,
        view_tables=definition.view_tables,
    )
    is_same = is_published and not full_refresh
    if is_same and plan.positions == published_positions:
        return plan
    if waiting_inputs := _find_waiting_inputs(run, definition):
        return replace(
            plan,
            is_waiting=True,
            reason=f"waiting for {', '.join(waiting_inputs)}",
            positions=published_positions if is_there else {},
            definition_hash=published_hash,
            view_tables=plan.published_view_tables,
        )
    if not is_same:
        reason = "new" if not since else "full refresh" if is_published else "definition changed"
        return replace(plan, evaluates=True, scope="all", reason=reason)
    if _has_changed_input(run, definition, since):
        scope = "changes" if definition.evaluation == "incremental" else "all"
        changed_rows = sum(run.input_states[name].changed_rows for name in _map_input_sources(definition))
        return replace(plan, evaluates=True, scope=scope, reason="inputs changed", changed_rows=changed_rows)
    return replace(plan, reason="inputs unchanged")


def _map_input_sources(definition: Definition) -> dict[str, str]:
    """The source of each input, by `<source>.<table>`."""
    return {f"{table['source']}.{table['table']}": table["source"] for table in definition.inputs}


def _find_waiting_inputs(run: RunState, definition: Definition) -> list[str]:
    """The inputs that are not ready, see the macro `input_states_query`."""
    states = run.input_states
    return [name for name in _map_input_sources(definition) if name not in states or states[name].waiting]


def _has_changed_input(run: RunState, definition: Definition, since: Mapping[str, Watermark]) -> bool:
    """Whether a row of an input changed since the watermark."""
    return any(
        run.input_states[name].changed_at > (since[source].checkpoint_id if source in since else 0)
        for name, source in _map_input_sources(definition).items()
    )


class DefinitionHashes:
    """Describes definitions; reads the views and seeds that they depend on once per run.

    A hash covers a view as it is deployed in the lake, not as in the project's files. A run reads each view that it
    builds once. It reads other views, which another process may build, only if the models' positions have changed since
    the process last read them: a warm run without new changes reads nothing. `tidemark plan` has compiled all views,
    and a hash covers their compiled SQL.
    """

    # The nodes of the project that this process ran last. By unique id of a view: the models' positions at its last
    # read, and the SQL.
    _last_project: ClassVar[tuple[Mapping[str, Node], dict[str, tuple[Positions, str]]]] = ({}, {})

    def __init__(self, run: RunState) -> None:
        self._run = run
        self._read_views: set[str] = set()
        self._seed_texts: dict[str, str] = {}
        self._deployed_views: dict[str, bool] = {}
        if self._last_project[0] is not run.graph.nodes:
            DefinitionHashes._last_project = (run.graph.nodes, {})
        self._view_sql = self._last_project[1]

    def describe(self, model: Node, sql: str, settings: DefinitionSettings) -> Definition:
        """A definition with its hash.

        The hash covers its SQL and settings, the views below it, their tables and the contents of seeds. Its second
        part covers only the columns that name the buckets; `tidemark buckets` compares it.
        """
        graph = self._run.graph
        inputs = graph.inputs(model)
        parts = [normalized_sql(sql), _dump_json(dataclasses.asdict(settings)), _dump_json(inputs)]
        for node in graph.upstream(model):
            if materialization(node) == "view":
                parts.append(f"{node['unique_id']}:{normalized_sql(self.deployed_sql(node))}")
            elif node["resource_type"] == "seed":
                parts.append(f"{node['unique_id']}:{self._describe_seed(node)}")
        definition_hash = f"{_hash_text(chr(10).join(parts))}-{_hash_text(json.dumps(settings.named_by))}"
        return Definition(model["name"], definition_hash, inputs, settings.evaluation, graph.view_tables(model))

    def deployed_sql(self, view: Node) -> str:
        """The query of a view as it is deployed."""
        unique_id, positions = view["unique_id"], self._run.positions("row_state")
        read_positions, sql = self._view_sql.get(unique_id, (None, ""))
        is_outdated = unique_id in self._run.graph.selected or read_positions != positions
        if unique_id not in self._read_views and is_outdated:
            sql = str(view.get("compiled_code") or "") or self._read_deployed_sql(view)
            self._view_sql[unique_id] = (positions, sql)
            self._read_views.add(unique_id)
        return sql

    def has_deployed_inputs(self, model: Node) -> bool:
        """Whether the views below a definition are in the lake as the project has compiled them, and its seeds are
        loaded: only then its query can be analysed without a run.
        """
        return all(self._is_deployed(node) for node in self._run.graph.upstream(model))

    def _is_deployed(self, node: Node) -> bool:
        if node["resource_type"] == "seed":
            return self._run.lake.exists(f"{node['schema']}.{node['alias']}")
        if materialization(node) != "view":
            return True
        if node["unique_id"] not in self._deployed_views:
            try:
                deployed_sql = self._read_deployed_sql(node)
            except DbtRuntimeError:
                deployed_sql = ""  # there is no such view yet
            is_same = normalized_sql(deployed_sql) == normalized_sql(str(node.get("compiled_code")))
            self._deployed_views[node["unique_id"]] = is_same
        return self._deployed_views[node["unique_id"]]

    def _read_deployed_sql(self, view: Node) -> str:
        (row,) = self._run.lake.select(f"show create table {view['schema']}.{view['alias']}")
        statement: str = next(iter(row.values()))
        return statement.partition("\nAS\n")[2]

    def _describe_seed(self, seed: Node) -> str:
        """A text of the columns and the contents of a seed as it is loaded."""
        unique_id, table = seed["unique_id"], f"{seed['schema']}.{seed['alias']}"
        if unique_id not in self._seed_texts:
            parts = ["not loaded"]
            if self._run.lake.exists(table):
                (row,) = self._run.lake.select(self._run.lake.render("seed_contents_query", seed=table))
                columns = describe(self._run.lake, table)
                parts = [row["contents"], *(f"{column.name} {column.type}" for column in columns)]
            self._seed_texts[unique_id] = str(parts)
        return self._seed_texts[unique_id]


def _dump_json(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _hash_text(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()
