"""The columns of a definition, checked against its settings and the views below it."""

from collections.abc import Iterable, Sequence

from dbt.adapters.tidemark.bucket_plan import BucketPlan, DefinitionHashes
from dbt.adapters.tidemark.column_types import has_text, is_storable, storage_type
from dbt.adapters.tidemark.definition_settings import DefinitionSettings, check_lookup_columns, contract_types
from dbt.adapters.tidemark.lake_statements import Column, LakeStatements, describe, identifier
from dbt.adapters.tidemark.project_graph import Node, definition_error, is_lookup, materialization, meta
from dbt.adapters.tidemark.releases import SYSTEM_COLUMNS
from dbt.adapters.tidemark.run_state import RunState

# Names that the macros of `insert_differences` give to columns of their own, and Iceberg to its metadata columns.
_RESERVED_COLUMNS = (
    *("_alike", "_is_put", "_object_hash", "_seq", "_sha256", "_slice"),
    *("_file", "_pos", "_spec_id", "_partition", "_deleted", "_row_id", "_last_updated_sequence_number"),
    *("_change_type", "_change_ordinal", "_commit_snapshot_id"),
)


class DefinitionColumns:
    """Reads and checks the columns of the definitions of one invocation."""

    def __init__(self, run: RunState, hashes: DefinitionHashes) -> None:
        self._run, self._lake, self._hashes = run, run.lake, hashes

    def read(self, model: Node, sql: str, settings: DefinitionSettings, plan: BucketPlan) -> list[Column]:
        """The columns that a definition selects, with the types of its table, without `_row_key`.

        sql: the query of its objects, of a lookup the buckets' names. The columns of a definition that is published
        unchanged were checked before: they are returned without types.
        """
        if plan.is_published:
            return [Column(name) for name in plan.published_columns]
        if plan.evaluates:
            self._check_views(model)
        if is_lookup(model):
            selected_names = [column.name for column in describe(self._lake, f"query {model['compiled_code']}")]
            check_lookup_columns(model, self._run.graph, selected_names)
        selected_columns = describe(self._lake, f"query {sql}")
        check_columns(model, settings, selected_columns)
        if settings.evaluation == "incremental":
            self._check_row_wise(model, sql)
        return [
            Column(column.name, storage_type(column.type))
            for column in selected_columns
            if column.name.lower() != "_row_key"
        ]

    def _check_views(self, model: Node) -> None:
        """Rejects an evaluation over a view of views that this run does not build, and that was created when those had
        other columns: Spark keeps a view's columns.

        When such a view is created again its text stays the same, so the definition would not be evaluated again.
        """
        for node in self._run.graph.upstream(model):
            is_view_of_views = materialization(node) == "view" and not meta(node).get("table")
            if not is_view_of_views or node["unique_id"] in self._run.graph.selected:
                continue
            view = f"{node['schema']}.{node['alias']}"
            if describe(self._lake, view) != describe(self._lake, f"query {self._hashes.deployed_sql(node)}"):
                problem = f"reads '{node['name']}', which was created when its inputs had other columns"
                raise definition_error(
                    model, problem, f"Create it again: dbt run --select {node['name']} {model['name']}"
                )

    def _check_row_wise(self, model: Node, sql: str) -> None:
        """Rejects `evaluation: incremental` if a changed row can change more than its own output."""
        # Takes half a second to import, which most runs need not.
        from dbt.adapters.tidemark.row_wise import RowWiseCheck, UnreadableQuery

        views = {
            f"{node['schema']}.{node['alias']}": self._hashes.deployed_sql(node)
            for node in self._run.graph.upstream(model)
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
        rows = self._lake.select(f"describe function extended {identifier(function)}")
        return any(".expressions.aggregate." in str(next(iter(row.values()))) for row in rows)


def check_contract(lake: LakeStatements, model: Node) -> None:
    """Rejects a definition that differs from its enforced model contract, if it has one.

    The contract has the columns of the model's query, with their types or those of the table. Spark compares the types:
    `integer` is `int`.
    """
    contract_columns = contract_types(model)
    if not contract_columns:
        return
    empty = ", ".join(f"cast(null as {kind}) as {identifier(name)}" for name, kind in contract_columns.items())
    expected, selected = (
        {column.name.lower(): storage_type(column.type) for column in describe(lake, f"query {query}")}
        for query in (f"select {empty}", model["compiled_code"])
    )
    differences = [
        f"'{name}' is {selected.get(name, 'not selected')} (contract: {expected.get(name, 'no such column')})"
        for name in {**expected, **selected}
        if expected.get(name) != selected.get(name)
    ]
    if differences:
        problem = f"differs from its contract: {', '.join(differences)}"
        raise definition_error(model, problem, "Change the query or the contract")


def check_columns(model: Node, settings: DefinitionSettings, selected_columns: Sequence[Column]) -> None:
    """Rejects columns that a bucket table can't have, and settings that name no column. Names must differ by more than
    upper and lower case.
    """
    types: dict[str, str] = {}
    for column in selected_columns:
        name = column.name.lower()
        if name in types:
            raise definition_error(model, f"selects two columns named '{column.name}'", "Give one of them another name")
        if name in SYSTEM_COLUMNS + _RESERVED_COLUMNS:
            problem = f"selects a column named '{column.name}', which every bucket table has"
            raise definition_error(model, problem, "Select it under another name")
        if not is_storable(column.type):
            raise definition_error(
                model,
                f"selects '{column.name}' as {column.type}, which no table can have",
                "Cast it. The fields of a struct need names of letters, digits and _, without a leading digit, that "
                "differ by more than upper and lower case",
            )
        types[name] = column.type
    for name in _list_named_columns(settings):
        column_type = types.get(name.lower())
        if column_type is None:
            selected_names = ", ".join(column.name for column in selected_columns if column.name.lower() != "_row_key")
            problem = f"meta names a column '{name}' that the query does not select"
            raise definition_error(model, problem, f"It selects {selected_names}")
        if not has_text(column_type):
            problem = f"meta names the column '{name}', whose type {column_type} is no text"
            raise definition_error(model, problem, "Convert it to text, with hex() or to_json()")


def _list_named_columns(settings: DefinitionSettings) -> Iterable[str]:
    return [*settings.bucket_by, settings.object_id, *(settings.unique_key or ["_row_key"])]
