"""What a run does with a definition, and the hash by which it notices that the definition has changed."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from dbt.adapters.tidemark.definition_settings import DefinitionSettings
from dbt.adapters.tidemark.project_graph import Inputs, Node, materialization
from dbt.adapters.tidemark.releases import INVALIDATED
from dbt.adapters.tidemark.run_state import Positions, RunState, Watermark
from dbt.adapters.tidemark.sql_text import normalized_sql


@dataclass(frozen=True)
class Definition:
    """hash: of the SQL, the settings and all that the query reads but its rows. inputs: the source tables below it."""

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
    manually, the definition is new. is_published: the published rows are those of this definition.
    """

    definition: Definition
    is_there: bool
    since: Mapping[str, Watermark]
    published_columns: Any
    published_view_tables: Mapping[str, str]
    is_published: bool
    is_invalidated: bool
    positions: Positions
    definition_hash: str | None
    view_tables: Mapping[str, str]
    reason: str = "unchanged"
    evaluates: bool = False
    is_waiting: bool = False
    scope: str = "changes"

    @property
    def state(self) -> str:
        """In words of `tidemark plan`."""
        if not self.since:
            return "new"
        if self.is_waiting:
            return "waiting"
        return "unchanged" if self.is_published else "changed"


def make_plan(run: RunState, definition: Definition, *, is_there: bool, full_refresh: bool) -> BucketPlan:
    """The plan of a definition in this run."""
    since = run.watermarks.get(definition.name, {}) if is_there else {}
    published = next(iter(since.values()), None)
    published_hash = published.definition_hash if published else None
    is_published = published_hash == definition.hash
    at = run.positions("row_state")
    published_positions = run.published_positions(definition.name)
    plan = BucketPlan(
        definition=definition,
        is_there=is_there,
        since=since,
        published_columns=published.columns if published else [],
        published_view_tables=published.view_tables if published else {},
        is_published=is_published,
        is_invalidated=published_hash == INVALIDATED,
        positions={table["source"]: at[table["source"]] for table in definition.inputs if table["source"] in at},
        definition_hash=definition.hash,
        view_tables=definition.view_tables,
    )
    is_same = is_published and not full_refresh
    if is_same and plan.positions == published_positions:
        return plan
    if waiting := _waiting_inputs(run, definition):
        return replace(
            plan,
            is_waiting=True,
            reason=f"waiting for {', '.join(waiting)}",
            positions=published_positions if is_there else {},
            definition_hash=published_hash,
            view_tables=plan.published_view_tables,
        )
    if not is_same:
        reason = "new" if not since else "full refresh" if is_published else "definition changed"
        return replace(plan, evaluates=True, scope="all", reason=reason)
    if _has_changed_input(run, definition, since):
        scope = "changes" if definition.evaluation == "incremental" else "all"
        return replace(plan, evaluates=True, scope=scope, reason="inputs changed")
    return replace(plan, reason="inputs unchanged")


def _input_names(definition: Definition) -> dict[str, str]:
    """The source of each input, by `<source>.<table>`."""
    return {f"{table['source']}.{table['table']}": table["source"] for table in definition.inputs}


def _waiting_inputs(run: RunState, definition: Definition) -> list[str]:
    """The inputs that are not ready, see the macro `input_states_query`."""
    states = run.input_states
    return [name for name in _input_names(definition) if name not in states or states[name].waiting]


def _has_changed_input(run: RunState, definition: Definition, since: Mapping[str, Watermark]) -> bool:
    """Whether a row of an input changed since the watermark."""
    return any(
        run.input_states[name].changed_at > (since[source].checkpoint_id if source in since else 0)
        for name, source in _input_names(definition).items()
    )


class DefinitionHashes:
    """Describes definitions; reads what they depend on in the lake once per run.

    A view counts as it is deployed in the lake, not as in the files. A run reads each view that it builds once. It
    reads other views, which another process may build, only if the models' positions have changed since the process
    last read them: a warm run without new changes reads nothing. `tidemark plan` has compiled all views, and their
    compiled SQL counts.
    """

    # The nodes of the project that this process ran last. By unique id: the models' positions, and the text read then.
    _last: ClassVar[tuple[Mapping[str, Node], dict[str, tuple[Positions, str]]]] = ({}, {})

    def __init__(self, run: RunState) -> None:
        self._run = run
        self._read: set[str] = set()
        self._seeds: dict[str, str] = {}
        if self._last[0] is not run.graph.nodes:
            DefinitionHashes._last = (run.graph.nodes, {})
        self._texts = self._last[1]

    def describe(self, model: Node, sql: str, settings: DefinitionSettings) -> Definition:
        """A definition with its hash.

        The hash covers its SQL and settings, the views below it, their tables and the contents of seeds. Its second
        part covers only the columns that name the buckets; `tidemark buckets` compares it.
        """
        graph = self._run.graph
        inputs = graph.inputs(model)
        parts = [normalized_sql(sql), _json(dataclasses.asdict(settings)), _json(inputs)]
        for node in graph.upstream(model):
            if materialization(node) == "view":
                parts.append(f"{node['unique_id']}:{normalized_sql(self.deployed_sql(node))}")
            elif node["resource_type"] == "seed":
                parts.append(f"{node['unique_id']}:{self._seed_digest(node)}")
        digest = f"{_md5(chr(10).join(parts))}-{_md5(json.dumps(settings.named_by))}"
        return Definition(model["name"], digest, inputs, settings.evaluation, graph.view_tables(model))

    def deployed_sql(self, view: Node) -> str:
        """The query of a view as it is deployed."""
        unique_id, positions = view["unique_id"], self._run.positions("row_state")
        known, text = self._texts.get(unique_id, (None, ""))
        is_outdated = unique_id in self._run.graph.selected or known != positions
        if unique_id not in self._read and is_outdated:
            text = str(view.get("compiled_code") or "") or self._read_deployed(view)
            self._texts[unique_id] = (positions, text)
            self._read.add(unique_id)
        return text

    def _read_deployed(self, view: Node) -> str:
        (row,) = self._run.lake.select(f"show create table {view['schema']}.{view['alias']}")
        created: str = next(iter(row.values()))
        return created.partition("\nAS\n")[2]

    def _seed_digest(self, seed: Node) -> str:
        """Identifies the columns and the contents of a seed as it is loaded."""
        unique_id, table = seed["unique_id"], f"{seed['schema']}.{seed['alias']}"
        if unique_id not in self._seeds:
            parts = ["not loaded"]
            if self._run.lake.exists(table):
                (row,) = self._run.lake.select(self._run.lake.render("seed_contents_query", seed=table))
                described = self._run.lake.select(f"describe {table}")
                parts = [row["contents"], *(f"{column['col_name']} {column['data_type']}" for column in described)]
            self._seeds[unique_id] = str(parts)
        return self._seeds[unique_id]


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _md5(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()
