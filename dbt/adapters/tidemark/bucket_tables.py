"""Creates, alters and drops the tables of definitions, `<name>` and `<name>__ops`: changes that no branch can stage.

Columns belong to a table, not to a branch. So before a column is dropped, what the definition has published is
invalidated (`Releases.invalidate`), and readers and concurrent runs notice.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from dbt_common.exceptions import CompilationError

from dbt.adapters.tidemark.bucket_plan import BucketPlan
from dbt.adapters.tidemark.column_types import is_wider
from dbt.adapters.tidemark.definition_settings import DefinitionSettings
from dbt.adapters.tidemark.lake_statements import Column, describe, identifier, literal
from dbt.adapters.tidemark.manifest import Publication, dropped_tables
from dbt.adapters.tidemark.project_graph import Node, is_published, materialization, model_tables, names
from dbt.adapters.tidemark.releases import INVALIDATED, Releases
from dbt.adapters.tidemark.run_state import WATERMARKS, RunState


@dataclass(frozen=True)
class TableChange:
    """How `prepare` changed a definition's tables.

    is_new: no row was published. rewritten: the type of a column changed, so that all rows are written again.
    """

    is_new: bool = False
    rewritten: bool = False


class BucketTables:
    """The tables of the definitions of one invocation."""

    def __init__(self, run: RunState, releases: Releases) -> None:
        self._run, self._lake, self._releases = run, run.lake, releases

    def have_both(self, model: Node) -> bool:
        """Whether both tables of a definition exist: they are only valid together.

        Unless the definition is published, the table of its name may be that of a model of another kind.
        """
        rows_table, ops_table = model_tables(model)
        if not (self._is_bucket_table(rows_table) and self._lake.exists(ops_table)):
            return False
        watermark = self._run.published(model["name"])
        is_published = watermark is not None and watermark.definition_hash != INVALIDATED
        return is_published or self._is_staged(rows_table)

    def prepare(
        self, model: Node, sql: str, settings: DefinitionSettings, columns: Sequence[Column], plan: BucketPlan
    ) -> TableChange:
        """Creates a definition's tables, or adds the columns that a changed definition needs.

        Columns that it no longer needs are dropped when it is published. If the type of a column changed, the query is
        first evaluated without writing: it may fail.
        """
        if not plan.is_there:
            self._create(model, columns)
            return TableChange(is_new=True)
        table = model_tables(model)[0]
        if plan.is_published:
            self._restore_names(table, columns)
            return TableChange()
        is_new = "main" not in self._releases.branches([table]).get(table, {})
        additions, replacements = self._plan_columns(table, columns)
        if replacements and not is_new:
            statement = self._lake.render("dry_run_evaluation", sql=sql, settings=settings, columns=columns, plan=plan)
            self._lake.select(statement)
            self._releases.invalidate(model["name"], table)
        for statement in [*additions, *replacements]:
            if self._run.invalidated is not None:
                self._releases.assert_not_overtaken()
            self._lake.select(statement)
        return TableChange(is_new=is_new, rewritten=bool(replacements) or plan.is_invalidated)

    def _restore_names(self, table: str, columns: Sequence[Column]) -> None:
        """Renames the columns back that a run was renaming when it was killed, if the edit was reverted since."""
        existing_names = {name.lower() for name in self._lake.columns(table)}
        for column in columns:
            interim_name = _make_interim_name(column.name)
            if interim_name.lower() in existing_names and column.name.lower() not in existing_names:
                for statement in _make_renames(table, interim_name, column.name):
                    self._lake.select(statement)

    def _plan_columns(self, table: str, columns: Sequence[Column]) -> tuple[list[str], list[str]]:
        """The statements that add, rename and widen columns, and those that replace columns of another type."""
        existing_columns = {column.name.lower(): column for column in describe(self._lake, table)}
        names = {column.name.lower() for column in columns}
        additions, replacements = [], []
        for column in columns:
            add = f"alter table {table} add column {identifier(column.name)} {column.type}"
            interim_name = _make_interim_name(column.name).lower()
            old = existing_columns.get(column.name.lower())
            if old is None and interim_name not in names:
                old = existing_columns.get(interim_name)
            if old is None:
                additions.append(add)
            elif old.type == column.type or is_wider(column.type, old.type):
                additions += _make_renames(table, old.name, column.name)
                if old.type != column.type:
                    additions.append(f"alter table {table} alter column {identifier(column.name)} type {column.type}")
            else:
                replacements += [f"alter table {table} drop column {identifier(old.name)}", add]
        return additions, replacements

    def _create(self, model: Node, columns: Sequence[Column]) -> None:
        """Creates both tables of a definition, and drops what is left of them.

        If the definition was published, one or both were dropped, or the rows were replaced by another kind of model.
        If it was not, a killed run with another version of the definition may have created one. Another run may have
        created and published both since this run began. So this run makes a release before it drops anything, and the
        release is refused if another run has published.
        """
        rows_table, ops_table = model_tables(model)
        is_published = model["name"] in self._run.watermarks
        is_left_over = self._lake.exists(rows_table) or self._lake.exists(ops_table)
        if is_published or (is_left_over and self._run.watermarks):
            tables = dropped_tables(model["name"], rows_table, self._releases.last_op(model["name"]))
            self._releases.invalidate(model["name"], rows_table, [self._make_unchanged(), *tables])
            self._releases.assert_not_overtaken()
        self._lake.drop(rows_table)
        self._lake.drop(ops_table)
        statement = self._lake.render("create_rows_table", table=rows_table, columns=columns)
        self._lake.create(rows_table, statement)
        self._lake.create(ops_table, self._lake.render("create_ops_table", table=ops_table))

    def retire_replaced_tables(self) -> None:
        """Retires the tables of definitions whose models are now of another kind, if this run builds these models.

        dbt replaces a table by a table or view, but keeps the table's properties: the new rows would be staged on the
        run's branch and never published. Other kinds would append to the old rows. Concurrent runs that have staged
        changes of the definition are refused. The log stays until it is pruned.
        """
        for unique_id in sorted(self._run.graph.selected):
            node = self._run.graph.nodes.get(unique_id, {})
            if node.get("resource_type") != "model" or is_published(node):
                continue
            name, table = node["alias"], model_tables(node)[0]
            if not (self._is_bucket_table(table) and self._is_staged(table)):
                continue
            was_published = name in self._run.watermarks
            if was_published:
                self._releases.invalidate(name, table, dropped_tables(name, table))
            if was_published and materialization(node) in {"table", "view"}:
                self._lake.select(f"alter table {table} set tblproperties ('write.wap.enabled' = 'false')")
            else:
                self._lake.drop(table)

    def prune(self, definition: str, schema: str) -> None:
        """Drops the tables and the watermarks of a definition whose model was deleted; rejects a definition of the
        project. The rows are kept if they now belong to another kind of model.

        It begins with a release, so that a concurrent run that has staged changes of the definition is refused, and
        that the next log continues after the last op. The watermarks are deleted last: after a kill the definition is
        still listed as deleted.
        """
        if definition in names(self._run.graph.definitions()):
            raise CompilationError(
                f"Nothing was done: '{definition}' is a definition of the project. Delete its model."
            )
        self._releases.finish_interrupted()
        table = f"{schema}.{definition}"
        if self._run.watermarks:
            tables = dropped_tables(definition, table, self._releases.last_op(definition))
            self._releases.commit([self._make_unchanged(), *tables], {self._run.newest_release})
        if self._is_bucket_table(table) and self._is_staged(table):
            self._lake.drop(table)
        self._lake.drop(f"{table}__ops")
        if definition in self._run.watermarks:
            self._lake.select(f"delete from {WATERMARKS} where model = {literal(definition)}")

    def _make_unchanged(self) -> Publication:
        """The watermark of `checkpoints`, unchanged. A release of dropped tables alone has none, so the next run would
        not see the release.
        """
        return Publication("checkpoints", ("core.checkpoints",), self._run.published_report("checkpoints"))

    def _is_bucket_table(self, table: str) -> bool:
        """Whether a relation is a definition's table, by the columns in dbt's cache: a model of another kind may have
        replaced it. dbt knows no columns of a table that this run has created.
        """
        columns = self._lake.columns(table)
        return self._lake.exists(table) and (not columns or "_op_id" in columns)

    def _is_staged(self, table: str) -> bool:
        """Whether writes to a table go to the run's branch. A model that selects from a bucket may have all of its
        columns, but is not staged.
        """
        (row,) = self._lake.select(f"show tblproperties {table} ('write.wap.enabled')")
        return bool(row["value"] == "true")


def _make_renames(table: str, old_name: str, new_name: str) -> list[str]:
    """Spark does not rename a column to a name that differs only by upper and lower case: this takes two steps."""
    interim_name = _make_interim_name(new_name)
    rename = f"alter table {table} rename column"
    statements = []
    if old_name not in {new_name, interim_name}:
        statements.append(f"{rename} {identifier(old_name)} to {identifier(interim_name)}")
    if old_name != new_name:
        statements.append(f"{rename} {identifier(interim_name)} to {identifier(new_name)}")
    return statements


def _make_interim_name(name: str) -> str:
    return f"{name}__renamed"
