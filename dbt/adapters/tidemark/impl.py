"""The adapter: what Jinja calls by `adapter.<name>(...)`, and the statements of the adapter's logic."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

from dbt.adapters.base.meta import available
from dbt.adapters.base.relation import BaseRelation
from dbt.adapters.contracts.connection import AdapterResponse
from dbt.adapters.contracts.relation import RelationType
from dbt.adapters.spark.impl import SparkAdapter, SparkConfig
from dbt.selected_resources import set_selected_resources
from dbt_common.utils.executor import executor

from dbt.adapters.tidemark.bucket_plan import BucketPlan, DefinitionHashes, make_plan
from dbt.adapters.tidemark.bucket_tables import BucketTables, TableChange
from dbt.adapters.tidemark.column_types import are_integers
from dbt.adapters.tidemark.connections import TidemarkConnectionManager, branch_name
from dbt.adapters.tidemark.definition_columns import DefinitionColumns, check_contract
from dbt.adapters.tidemark.definition_settings import (
    DefinitionSettings,
    bucket_settings,
    definition_settings,
    find_definition,
)
from dbt.adapters.tidemark.lake_statements import Column, NoLake
from dbt.adapters.tidemark.log_slices import SAMPLE, Place, slice_starts
from dbt.adapters.tidemark.maintenance import Maintenance
from dbt.adapters.tidemark.manifest import NodeResult
from dbt.adapters.tidemark.project_graph import Node, ProjectGraph
from dbt.adapters.tidemark.releases import Releases
from dbt.adapters.tidemark.run_state import RunState
from dbt.adapters.tidemark.watermarks import Positions

# The package with the statements that are macros.
_PACKAGE = "tidemark"
# A line of a relation's `information`: a column and its type, as a tree or as `describe` lists it.
_COLUMN_LINE = re.compile(r"(?: \|-- )?(\S.*?): (.*?)(?: \(nullable = \w+\))?")


@dataclass
class TidemarkConfig(SparkConfig):
    """The configs of models. staged: whether a run's rows are on its branch until the release; if not, they are visible
    at once.
    """

    staged: bool = True


@dataclass
class ModelResponse(AdapterResponse):
    """What a model did. staged: whether it wrote rows. positions: by source, of a model of `core`. waiting: whether a
    definition waits for an input. evaluation: of a definition that was evaluated.
    """

    staged: bool = False
    positions: dict[str, int] | None = None
    waiting: bool = False
    evaluation: dict[str, Any] | None = None


@dataclass
class PlanResponse(AdapterResponse):
    """What `tidemark plan` shows of a definition. rows: the rows of its inputs that it would evaluate."""

    state: str = ""
    reason: str = ""
    rows: int = 0


@dataclass(frozen=True)
class _Invocation:
    """The logic of one invocation, which all its nodes share."""

    run: RunState
    releases: Releases
    tables: BucketTables
    hashes: DefinitionHashes


class TidemarkAdapter(SparkAdapter):
    """dbt-spark's adapter for a lake of Tidemark. dbt creates one for each invocation."""

    AdapterSpecificConfigs = TidemarkConfig
    ConnectionManager = TidemarkConnectionManager
    connections: TidemarkConnectionManager

    def __init__(self, config: Any, mp_context: Any) -> None:
        super().__init__(config, mp_context)
        # `dbt retry` and `dbt run-operation` set no selection: they would see that of the last command of this process.
        set_selected_resources(set())
        self._creation_lock = Lock()
        self._invocation: _Invocation | None = None

    # --- Called by Jinja: the run ---

    @available.parse(lambda *_: RunState(NoLake(), ProjectGraph({}, ())))
    def run(self, graph: Mapping[str, Any], selected: Sequence[str]) -> RunState:
        """The state of this invocation, see `RunState`; created by the first call. selected: ids of nodes."""
        with self._creation_lock:
            if self._invocation is None:
                run = RunState(self, ProjectGraph(graph, selected))
                releases = Releases(run, branch_name())
                self._invocation = _Invocation(run, releases, BucketTables(run, releases), DefinitionHashes(run))
        return self._invocation.run

    @available.parse_none
    def publish(self, results: Iterable[NodeResult]) -> None:
        """Publishes the models that passed, on-run-end; see `Releases`."""
        self._started.releases.publish(results)

    @available.parse_none
    def recover(self) -> None:
        """Finishes a release that was interrupted between its steps, and retires the tables of definitions whose models
        are now of another kind, on-run-start.
        """
        self._started.releases.finish_interrupted()
        self._started.tables.retire_replaced_tables()

    @available.parse(lambda *_: [])
    def run_maintenance(self, step: str, arguments: Mapping[str, Any]) -> Iterator[str]:
        """A step of `Maintenance`; yields a line for each table that it changed."""
        lines: Iterator[str] = getattr(Maintenance(self._started.run, self._started.releases), step)(**arguments)
        return lines

    @available.parse_none
    def drop_branch(self, table: str) -> None:
        """Drops this invocation's branch of a table, if it exists."""
        self._started.releases.drop_branches([(table, self._started.releases.branch)])

    # --- Called by Jinja: events ---

    @available
    def log_sample(self) -> int:
        """One record in this many is in the sample that `log_slices` takes."""
        return SAMPLE

    @available
    def log_slices(self, sample: Iterable[Mapping[str, Any]]) -> dict[str, list[Place]]:
        """The places at which the log of each source is divided into slices, see `slice_starts`."""
        return slice_starts((row["source"], int(row["commit_lsn"]), int(row["change_lsn"])) for row in sample)

    # --- Called by Jinja: definitions ---

    @available.parse_none
    def definition_settings(self, model: Node) -> DefinitionSettings:
        """The checked settings of a definition, from its `meta`."""
        return definition_settings(model, self._started.run.graph)

    @available.parse_none
    def looked_up_settings(self, lookup: Node) -> DefinitionSettings:
        """The settings of the definition whose buckets a lookup names."""
        return bucket_settings(find_definition(lookup, self._started.run.graph))

    @available.parse_none
    def plan_definition(self, model: Node, sql: str, settings: DefinitionSettings, *, full_refresh: bool) -> BucketPlan:
        """What this run does with a definition, see `BucketPlan`."""
        is_there = self._started.tables.have_both(model)
        if not is_there:
            self._started.releases.check_schema(model)
        definition = self._started.hashes.describe(model, sql, settings)
        plan = make_plan(self._started.run, definition, is_there=is_there, full_refresh=full_refresh)
        self._started.run.graph.check_view_tables(model, plan.published_view_tables)
        return plan

    @available.parse_none
    def check_contract(self, model: Node, plan: BucketPlan) -> None:
        """Rejects a definition that differs from its model contract, unless it waits: its query may not be complete
        yet.
        """
        if not plan.is_waiting:
            check_contract(self, model)

    @available.parse_none
    def check_plan(self, model: Node, sql: str, settings: DefinitionSettings, plan: BucketPlan) -> None:
        """Rejects a definition that a run would reject, by its query and contract; not if views below it are new or
        edited, because a run creates these first.
        """
        if self._started.hashes.has_deployed_inputs(model):
            self.check_contract(model, plan)
            if plan.evaluates:
                self.bucket_columns(model, sql, settings, plan)

    @available.parse(lambda *_: [])
    def bucket_columns(self, model: Node, sql: str, settings: DefinitionSettings, plan: BucketPlan) -> list[Column]:
        """The checked columns of a definition, see `DefinitionColumns`."""
        return DefinitionColumns(self._started.run, self._started.hashes).read(model, sql, settings, plan)

    @available.parse_none
    def prepare_bucket_tables(
        self, model: Node, sql: str, settings: DefinitionSettings, columns: Sequence[Column], plan: BucketPlan
    ) -> TableChange:
        """Creates or alters the tables of a definition, see `BucketTables`."""
        return self._started.tables.prepare(model, sql, settings, columns, plan)

    @available.parse(lambda *_: 0)
    def last_op(self, model: Node) -> int:
        """The last op id of a definition, also of its dropped logs."""
        return self._started.releases.last_op(model["name"])

    @available.parse_none
    def prune(self, definition: str, schema: str) -> None:
        """Drops what is left of a definition whose model was deleted."""
        self._started.tables.prune(definition, schema)

    @available
    def response(
        self,
        message: str,
        rows_affected: int = 0,
        *,
        staged: bool = False,
        positions: Positions | None = None,
        waiting: bool = False,
        evaluation: dict[str, Any] | None = None,
    ) -> ModelResponse:
        """The response of a model: dbt shows its message, and its results contain it."""
        return ModelResponse(
            _message=message,
            rows_affected=rows_affected,
            staged=staged,
            positions=None if positions is None else {source: point.position for source, point in positions.items()},
            waiting=waiting,
            evaluation=evaluation,
        )

    @available
    def plan_response(self, plan: BucketPlan, rows: int) -> PlanResponse:
        """What dbt shows of a definition that only reports its plan."""
        return PlanResponse(_message=plan.reason, rows_affected=0, state=plan.state, reason=plan.reason, rows=rows)

    @available.parse(lambda *_: False)
    def are_integers(self, table: str, columns: Sequence[str]) -> bool:
        """Whether columns of a table are integers, see `column_types.are_integers`."""
        return are_integers(columns, self.columns(table))

    # --- The statements of the adapter's logic, see LakeStatements ---

    def select(self, sql: str) -> list[dict[str, Any]]:
        """The rows of a statement, by column name."""
        return self.connections.select(sql)

    def select_all(self, statements: Sequence[str]) -> list[list[dict[str, Any]]]:
        """The rows of statements that do not conflict, executed in parallel. Raises the first error after the last."""
        if len(statements) <= 1:
            return [self.select(statement) for statement in statements]
        with executor(self.config) as pool:
            futures = [
                pool.submit_connected(self, "metadata", self.select, statement)  # type: ignore[no-untyped-call]
                for statement in statements
            ]
        return [future.result() for future in futures]

    def render(self, macro: str, **arguments: Any) -> str:
        """A statement that is a macro of this package."""
        return str(self.execute_macro(macro, project=_PACKAGE, kwargs=arguments))

    def create(self, table: str, statement: str) -> None:
        """Executes the statement that creates a table, and adds the table to dbt's cache."""
        self.select(statement)
        schema, _, name = table.partition(".")
        self.cache_added(self.Relation.create(schema=schema, identifier=name, type=RelationType.Table))

    def drop(self, table: str) -> None:
        """Drops a table with its files, or else the view of that name, if it exists.

        dbt does not know the views of an Iceberg catalog.
        """
        relation = self._find_relation(table)
        if relation is None:
            self.select(f"drop view if exists {table}")
        else:
            self.select(f"drop table if exists {table} purge")
            self.cache_dropped(relation)

    def exists(self, table: str) -> bool:
        """Whether dbt's cache has a table."""
        return self._find_relation(table) is not None

    def columns(self, table: str) -> dict[str, str]:
        """The types of a table's columns by name, as dbt listed them at the start of the run."""
        information = getattr(self._find_relation(table), "information", None) or ""
        columns = {}
        is_tree = " |-- " in information
        for line in information.splitlines():
            match = _COLUMN_LINE.fullmatch(line)
            if is_tree == line.startswith(" |-- ") and match:
                columns[match[1]] = match[2]
            elif not is_tree and not match:
                break
        return columns

    def _find_relation(self, table: str) -> BaseRelation | None:
        schema, _, name = table.partition(".")
        return self.get_relation("", schema, name)

    @property
    def _started(self) -> _Invocation:
        assert self._invocation is not None, "tidemark.run() comes first"
        return self._invocation
