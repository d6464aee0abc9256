"""The adapter: what Jinja calls by `adapter.<name>(...)`, and the statements of the adapter's logic."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

from dbt.adapters.base.meta import available
from dbt.adapters.contracts.connection import AdapterResponse
from dbt.adapters.spark.impl import SparkAdapter
from dbt_common.invocation import get_invocation_id
from dbt_common.utils.executor import executor

from dbt.adapters.tidemark.bucket_plan import BucketPlan, DefinitionHashes, make_plan
from dbt.adapters.tidemark.connections import TidemarkConnectionManager
from dbt.adapters.tidemark.definition_settings import (
    DefinitionSettings,
    bucket_settings,
    check_lookup_columns,
    definition_settings,
    find_definition,
)
from dbt.adapters.tidemark.lake_statements import NoLake, identifier
from dbt.adapters.tidemark.log_slices import SAMPLE, Place, slice_starts
from dbt.adapters.tidemark.manifest import NodeResult, Publication, dropped_tables
from dbt.adapters.tidemark.project_graph import Node, ProjectGraph, definition_error, materialization
from dbt.adapters.tidemark.releases import SYSTEM_COLUMNS, Releases
from dbt.adapters.tidemark.run_state import Report, RunState

# The package with the statements that are macros.
_PACKAGE = "tidemark"
# A line of a relation's `information`: a column and its type, as a tree or as `describe` lists it.
_COLUMN_LINE = re.compile(r"(?: \|-- )?(\S.*?): (.*?)(?: \(nullable = \w+\))?")


@dataclass
class ModelResponse(AdapterResponse):
    """What a model did. staged: whether it wrote rows. evaluation: of a definition that was evaluated."""

    staged: bool = False
    evaluation: dict[str, Any] | None = None


@dataclass
class PlanResponse(AdapterResponse):
    """What `tidemark plan` shows of a definition. rows: the rows of its inputs that it would evaluate."""

    state: str = ""
    reason: str = ""
    rows: int = 0


class TidemarkAdapter(SparkAdapter):
    """dbt-spark's adapter for a lake of Tidemark. dbt creates one for each invocation."""

    ConnectionManager = TidemarkConnectionManager
    connections: TidemarkConnectionManager

    def __init__(self, config: Any, mp_context: Any) -> None:
        super().__init__(config, mp_context)
        self._creation_lock = Lock()
        self._run: RunState | None = None
        self._releases: Releases | None = None
        self._hashes: DefinitionHashes | None = None

    # --- Called by Jinja: the run ---

    @available.parse(lambda *_: RunState(NoLake(), ProjectGraph({}, ())))
    def run(self, graph: Mapping[str, Any], selected: Sequence[str]) -> RunState:
        """The state of this invocation, see `RunState`; created by the first call. selected: ids of nodes."""
        with self._creation_lock:
            if self._run is None:
                self._run = RunState(self, ProjectGraph(graph, selected))
                self._releases = Releases(self._run, self.branch())
                self._hashes = DefinitionHashes(self._run)
        return self._run

    @available
    def branch(self) -> str:
        """The Iceberg branch on which this invocation stages: `spark.wap.branch` in profiles.yml has the same name."""
        return f"run_{get_invocation_id().replace('-', '')}"

    @available.parse_none
    def publish(self, results: Iterable[NodeResult]) -> None:
        """Publishes the models that passed, on-run-end; see `Releases`."""
        self._started_releases.publish(results)

    @available.parse_none
    def finish_interrupted_release(self) -> None:
        """Finishes a release that was interrupted between its steps, on-run-start."""
        self._started_releases.finish_interrupted()

    @available.parse_none
    def publish_maintenance(self, model: str, table: str, statements: Sequence[str]) -> str:
        """Publishes the effect of statements on a table, see `Releases.maintain`."""
        return self._started_releases.maintain(model, table, statements)

    @available.parse_none
    def invalidate_published(
        self, definition: str, table: str, last_op: int | None = None, *, dropped: bool = False
    ) -> None:
        """Ends the validity of what a definition has published.

        dropped: its rows are dropped after it; with last_op, its log too.
        """
        tables = dropped_tables(definition, table, last_op) if dropped else []
        self._started_releases.invalidate(definition, table, tables)

    @available.parse_none
    def release_dropped(self, definition: str, table: str, last_op: int) -> None:
        """A release of the dropped tables of a deleted definition: a concurrent run that staged changes is refused.

        It has the watermark of `checkpoints`; any other model's would do.
        """
        run = self._started_run
        report = Report(positions=run.published_positions("checkpoints"))
        models = [
            Publication("checkpoints", ("core.checkpoints",), report),
            *dropped_tables(definition, table, last_op),
        ]
        self._started_releases.commit(models, {run.newest_release})

    @available.parse(lambda *_: {})
    def table_branches(self, tables: Sequence[str]) -> dict[str, dict[str, int]]:
        """The branches of tables, with the snapshots at their heads."""
        return self._started_releases.branches(tables)

    @available.parse_none
    def drop_branch(self, table: str, branch: str | None = None) -> None:
        """Drops a branch of a table, by default this invocation's, if it exists."""
        self._started_releases.drop_branches([(table, branch or self.branch())])

    @available.parse(lambda table: table)
    def qualified_name(self, table: str) -> str:
        """A table's name with its catalog."""
        return self._started_releases.qualified(table)

    @available
    def system_columns(self) -> list[str]:
        """The columns that every definition's rows have in addition to those of its query."""
        return list(SYSTEM_COLUMNS)

    @available.parse(lambda *_: 0)
    def last_op(self, definition: str, in_tables: int) -> int:
        """The last op of a definition, also of its dropped logs, see `Releases.last_op`."""
        return self._started_releases.last_op(definition, in_tables)

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
        return definition_settings(model, self._started_run.graph)

    @available.parse_none
    def looked_up_settings(self, lookup: Node) -> DefinitionSettings:
        """The settings of the definition whose buckets a lookup names."""
        return bucket_settings(find_definition(lookup, self._started_run.graph))

    @available.parse_none
    def check_lookup_columns(self, lookup: Node, selected: list[str]) -> None:
        """Rejects a lookup whose query lacks a required column."""
        check_lookup_columns(lookup, self._started_run.graph, selected)

    @available.parse_none
    def plan_definition(
        self, model: Node, sql: str, settings: DefinitionSettings, *, is_there: bool, full_refresh: bool
    ) -> BucketPlan:
        """What this run does with a definition, see `BucketPlan`."""
        assert self._hashes is not None
        if not is_there:
            self._started_releases.check_schema(model)
        definition = self._hashes.describe(model, sql, settings)
        plan = make_plan(self._started_run, definition, is_there=is_there, full_refresh=full_refresh)
        self._started_run.graph.check_view_tables(model, plan.published_view_tables)
        return plan

    @available.parse_none
    def deployed_sql(self, view: Node) -> str:
        """The query of a view as it is deployed in the lake."""
        assert self._hashes is not None
        return self._hashes.deployed_sql(view)

    @available.parse_none
    def check_row_wise(self, model: Node, sql: str) -> None:
        """Rejects `evaluation: incremental` if a changed row can change more than its own output."""
        from dbt.adapters.tidemark.row_wise import RowWiseCheck, UnreadableQuery

        upstream = self._started_run.graph.upstream(model)
        views = {
            f"{node['schema']}.{node['alias']}": self.deployed_sql(node)
            for node in upstream
            if materialization(node) == "view"
        }
        fix = "Set evaluation: 'full', or select from one rows(...) with projections and filters only"
        check = RowWiseCheck(views, self._is_aggregate)
        try:
            problem = check.problem(sql)
        except UnreadableQuery as error:
            problem = f"evaluation: 'incremental' of a query that can't be checked: {error}"
        if check.lacks_checkpoint:
            fix = "Select _checkpoint_id in it and in the views below it"
        if problem:
            raise definition_error(model, problem, fix)

    def _is_aggregate(self, function: str) -> bool:
        """Whether Spark knows a function as an aggregate."""
        rows = self.select(f"describe function extended {identifier(function)}")
        return any(".expressions.aggregate." in str(next(iter(row.values()))) for row in rows)

    @available
    def response(
        self,
        message: str,
        rows_affected: int = 0,
        *,
        staged: bool = False,
        evaluation: dict[str, Any] | None = None,
    ) -> ModelResponse:
        """The response of a model: dbt shows its message, and its results contain it."""
        return ModelResponse(_message=message, rows_affected=rows_affected, staged=staged, evaluation=evaluation)

    @available
    def plan_response(self, plan: BucketPlan, rows: int) -> PlanResponse:
        """What dbt shows of a definition that only reports its plan."""
        return PlanResponse(_message=plan.reason, rows_affected=0, state=plan.state, reason=plan.reason, rows=rows)

    @available.parse(lambda *_: {})
    def columns_at_start(self, table: str) -> dict[str, str]:
        """The types of a table's columns by name, as dbt listed them; none for a table that this run created."""
        return self.columns(table)

    # --- The statements of the adapter's logic, see LakeStatements ---

    def select(self, sql: str) -> list[dict[str, Any]]:
        """The rows of a statement, by column name."""
        return self.connections.select(sql)

    def execute_all(self, statements: Sequence[str]) -> None:
        """Executes statements on different tables in parallel. Raises the first error after the last."""
        if len(statements) <= 1:
            for statement in statements:
                self.select(statement)
            return
        with executor(self.config) as pool:
            futures = [
                pool.submit_connected(self, "metadata", self.select, statement)  # type: ignore[no-untyped-call]
                for statement in statements
            ]
        for future in futures:
            future.result()

    def render(self, macro: str, **arguments: Any) -> str:
        """A statement that is a macro of this package."""
        return str(self.execute_macro(macro, project=_PACKAGE, kwargs=arguments))

    def exists(self, table: str) -> bool:
        """Whether dbt's cache has a table."""
        schema, _, name = table.partition(".")
        return self.get_relation("", schema, name) is not None

    def columns(self, table: str) -> dict[str, str]:
        """The types of a table's columns by name, as dbt listed them at the start of the run."""
        schema, _, name = table.partition(".")
        relation = self.get_relation("", schema, name)
        information = getattr(relation, "information", None) or ""
        columns = {}
        is_tree = " |-- " in information
        for line in information.splitlines():
            match = _COLUMN_LINE.fullmatch(line)
            if is_tree == line.startswith(" |-- ") and match:
                columns[match[1]] = match[2]
            elif not is_tree and not match:
                break
        return columns

    @property
    def _started_run(self) -> RunState:
        assert self._run is not None, "tidemark.run() comes first"
        return self._run

    @property
    def _started_releases(self) -> Releases:
        assert self._releases is not None, "tidemark.run() comes first"
        return self._releases
