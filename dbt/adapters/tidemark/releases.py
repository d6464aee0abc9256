"""Releases: what a run has staged on its Iceberg branch becomes visible at once, or not at all.

1. The manifest of the staged tables is appended to a branch of `core.releases` that begins where this run began, and
   fast-forwarded: this commit decides the run. If another run has published in the meantime, it is refused.
2. Each table's main is fast-forwarded to its branch (`_apply_release`), several at once.
3. The models' watermarks are written to `core.model_watermarks`, last.

A kill before 1 has no effect. After a kill later, the next run begins with 2 and 3 (`finish_interrupted`).
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

from dbt_common.exceptions import CompilationError

from dbt.adapters.tidemark.lake_statements import describe, identifier, literal, union_all
from dbt.adapters.tidemark.manifest import (
    Branches,
    ManifestRow,
    NodeResult,
    Publication,
    has_advanced,
    manifest_rows,
    publishable_models,
)
from dbt.adapters.tidemark.model_states import record_states
from dbt.adapters.tidemark.project_graph import Node, definition_error, is_published, model_tables
from dbt.adapters.tidemark.run_state import RELEASES, WATERMARKS, RunState

# In place of a definition's hash if its tables match no definition.
INVALIDATED = "invalidated"
# The columns that every definition's rows have in addition to those of its query.
SYSTEM_COLUMNS = (
    *("bucket", "object_type", "object_id", "row_key", "_key_number", "_op_id", "_replaces"),
    *("_digest_high", "_digest_low", "_checksum", "_checkpoint_id"),
)


@dataclass(frozen=True)
class _StagedTable:
    """A table of a committed release. columns: JSON of the columns that its model selects."""

    model: str
    table: str
    branch: str
    columns: str


class Releases:
    """The releases of one invocation, which stages on `branch`."""

    def __init__(self, run: RunState, branch: str) -> None:
        self._run, self._lake, self.branch = run, run.lake, branch
        self._catalog = ""

    def publish(self, results: Iterable[NodeResult]) -> None:
        """The last step of a run: publishes the models that passed, and whose ancestors did."""
        results = list(results)
        publications = publishable_models(results, self._run)
        self._drop_staged(results, {publication.unique_id for publication in publications})
        changed_publications = [
            publication
            for publication in publications
            if publication.report.staged or has_advanced(publication, self._run)
        ]
        if changed_publications:
            self.commit(changed_publications, {publication.report.seen for publication in publications})
        elif self._run.invalidated is not None:
            self.drop_branches([(RELEASES, self.branch)])
        record_states(results, publications, self._run)

    def commit(self, publications: Sequence[Publication], seen_releases: Collection[int]) -> None:
        """Commits a release, and applies it. seen_releases: the newest release that each model of the run knew.

        If there is a newer release, the run was computed from an outdated state and is refused. It is also refused if
        another process moved a table's main without a release, or dropped what the run has staged: once committed, this
        release could not be applied.
        """
        staged_tables = [table for publication in publications for table in publication.report.staged]
        branches, parents = self._read_history(staged_tables)
        rows = manifest_rows(publications, branches, self.branch)
        lost_tables = [table for table in staged_tables if self.branch not in branches.get(table, {})]
        diverged_tables = _find_diverged(((row.table, row.branch) for row in rows), branches, parents)
        if diverged_tables := [*lost_tables, *diverged_tables]:
            raise CompilationError(
                f"Nothing was published ({', '.join(diverged_tables)}): another process changed or dropped them during "
                "this run. Run it again."
            )
        release_id = self._append_release(rows, branches.get(RELEASES, {}).get("main"), seen_releases)
        branches.setdefault(RELEASES, {})[self.branch] = 0
        self._apply_release(
            release_id, [_StagedTable(row.model, row.table, row.branch, row.columns) for row in rows], branches
        )

    def invalidate(self, definition: str, table: str, dropped_tables: Iterable[Publication] = ()) -> None:
        """Ends the validity of what a definition has published, before its tables are changed as no branch can stage.

        It makes a release of its own, so that older concurrent runs are refused. The definition's hash is `INVALIDATED`
        until a run has published it again. The watermark is written with this run's own release, or by the next run.
        """
        with self._run.invalidating:
            report = replace(self._run.published_report(definition), definition_hash=INVALIDATED, columns=[])
            rows = manifest_rows([Publication(definition, (table,), report), *dropped_tables], {}, self.branch)
            self._run.invalidated = self._append_release(rows, self._find_main(), {self._run.newest_release})

    def assert_not_overtaken(self) -> None:
        """Refuses a change of tables if another process has made a release after this run's last invalidation."""
        with self._run.invalidating:
            newest_release = self._read_newest(self._find_main())
            if newest_release != self._run.invalidated:
                raise _overtaken(newest_release, [self._run.invalidated])

    def finish_interrupted(self) -> None:
        """The first step of a run: finishes a release that was interrupted between its steps."""
        self._assert_cache_fresh([RELEASES, WATERMARKS, *self._list_published_tables()])
        if not (self._lake.exists(RELEASES) and self._lake.exists(WATERMARKS)):
            return
        (row,) = self._lake.select(f"select coalesce(max(release_id), 0) as newest from {RELEASES}")
        last_finished = self._run.newest_release
        if row["newest"] <= last_finished:
            return
        unfinished = self._lake.select(
            f"select release_id, model, `table`, branch, columns, snapshot_id from {RELEASES}"
            f" where release_id > {last_finished} order by release_id"
        )
        for release_id in dict.fromkeys(row["release_id"] for row in unfinished):
            rows = [row for row in unfinished if row["release_id"] == release_id and row["snapshot_id"] is not None]
            staged_tables = [_StagedTable(row["model"], row["table"], row["branch"], row["columns"]) for row in rows]
            self._finish_release(release_id, staged_tables)

    def _finish_release(self, release_id: int, staged_tables: Sequence["_StagedTable"]) -> None:
        """Applies a committed release. A table that was dropped manually since then is left out: its definition is
        evaluated again.
        """
        tables = [row.table for row in staged_tables]
        self._assert_cache_fresh(tables)
        branches, parents = self._read_history(list(filter(self._lake.exists, tables)))
        self._run.read_watermarks_again()
        # If another process has finished the release, there may be branches of a later run: they must not be dropped.
        if self._run.newest_release >= release_id:
            return
        if staged_tables and not any(staged_tables[0].branch in names for names in branches.values()):
            # The branches of a release are dropped last, so this release was finished. Then a process that was late
            # wrote the watermarks of an older release. Any branches that exist are of runs that know this release.
            self._run.write_watermarks(release_id)
            return
        diverged_tables = _find_diverged(((row.table, row.branch) for row in staged_tables), branches, parents)
        statements = [
            f"call system.set_current_snapshot(table => '{row.table}', ref => '{row.branch}')"
            for row in staged_tables
            if row.table in diverged_tables
        ]
        if statements:  # The release is not undone: other tables of it may already have been moved.
            raise CompilationError(
                f"Release {release_id} can't be finished (core.releases): another process has moved main of its tables "
                f"since. Restore the published snapshots with Spark, and run again: {'; '.join(statements)}."
            )
        self._apply_release(release_id, staged_tables, branches)

    def publish_maintenance(self, model: str, table: str, statements: Sequence[str]) -> str:
        """Publishes the effect of statements on a table of a model, on the invocation's branch, as a run does.

        The release leaves the model's watermark unchanged. A concurrent run is refused, and succeeds when it is
        repeated. If a run has written the table in the meantime, the table is left to the next maintenance. Returns
        `published`, `overtaken`, or nothing if the statements changed nothing.
        """
        main_before = self.branches([table])[table]["main"]
        for statement in statements:
            self._lake.select(statement)
        self._run.read_watermarks_again()
        self.finish_interrupted()
        branches = self.branches([table])
        is_overtaken = branches[table]["main"] != main_before
        if (
            branches[table].get(self.branch, main_before) == main_before
            or is_overtaken
            or model not in self._run.watermarks
        ):
            self.drop_branches([(table, self.branch)])
            return "overtaken" if is_overtaken else ""
        report = replace(self._run.published_report(model), staged=[table])
        self.commit([Publication(model, (table,), report)], {self._run.newest_release})
        return "published"

    def change_manifest(self, statement: str) -> None:
        """Executes a statement that changes rows of `core.releases`, and moves main as a release does: of two processes
        the later is refused.
        """
        self._lake.select(f"alter table {self.qualified(RELEASES)} create branch {self.branch}")
        self._lake.select(statement)
        self._lake.select(self._make_fast_forward(RELEASES, self.branch))
        self.drop_branches([(RELEASES, self.branch)])

    # --- The steps of a release ---

    def _append_release(self, rows: Sequence[ManifestRow], main: int | None, seen_releases: Collection[int]) -> int:
        """The commit of a release; returns its id.

        A run that invalidated definitions has made a release for each of them on the same branch, and continues after
        the last one. If another run made a release in between, Iceberg refuses to move main.
        """
        newest_release = self._read_newest(main)
        if len(seen_releases) != 1 or newest_release not in {*seen_releases, self._run.invalidated}:
            raise _overtaken(newest_release, seen_releases)
        if main:
            self._lake.select(
                f"alter table {self.qualified(RELEASES)} create branch if not exists {self.branch} as of version {main}"
            )
        self._lake.select(self._lake.render("insert_release", rows=rows, release_id=newest_release + 1))
        self._lake.select(self._make_fast_forward(RELEASES, self.branch))
        return newest_release + 1

    def _find_main(self) -> int | None:
        """The snapshot of `core.releases` that is published; None before the first release."""
        return self.branches([RELEASES]).get(RELEASES, {}).get("main")

    def _read_newest(self, main: int | None) -> int:
        """The newest release at a snapshot of `core.releases`; 0 before the first."""
        if not main:
            return 0
        (row,) = self._lake.select(f"select max(release_id) as newest from {RELEASES} version as of {main}")
        return row["newest"] or 0

    def _apply_release(self, release_id: int, staged_tables: Sequence["_StagedTable"], branches: Branches) -> None:
        """Applies a committed release, by its tables and the branches of these.

        Applying it twice, or by two processes at once, changes nothing: a table without the branch has already been
        moved. Branches that other runs left in these tables are dropped: those runs can no longer publish. In
        `core.releases` only this release's own branch is dropped: a run whose branch was dropped there would silently
        write to a recreated branch, which begins at the newest main.
        """
        moved_tables = [row for row in staged_tables if row.branch in branches.get(row.table, {})]
        self._lake.select_all([self._make_fast_forward(row.table, row.branch) for row in moved_tables])
        for row in moved_tables:
            watermark, columns = self._run.published(row.model), json.loads(row.columns)
            is_edited = columns != (watermark.columns if watermark else []) or self._has_more_columns(
                row.table, columns
            )
            if is_edited and not row.table.endswith("__ops"):
                self._drop_unpublished_columns(row.table, columns)
        self._run.write_watermarks(release_id)
        own_branches = {row.branch for row in staged_tables}
        self.drop_branches(
            (table, branch)
            for table, names in branches.items()
            for branch in names
            if branch.startswith("run_") and (table != RELEASES or branch in own_branches)
        )

    def _drop_staged(self, results: Iterable[NodeResult], published_ids: Collection[str]) -> None:
        """Drops the staged changes of models that are not published."""
        nodes = [self._run.graph.nodes.get(result.node.unique_id, {}) for result in results]
        unpublished_nodes = [node for node in nodes if is_published(node) and node["unique_id"] not in published_ids]
        tables = [table for node in unpublished_nodes for table in model_tables(node)]
        self.drop_branches((table, self.branch) for table in tables if self._lake.exists(table))

    def _has_more_columns(self, table: str, columns: Collection[str]) -> bool:
        """Whether a definition's rows had more columns than it selects when the run began: an edit that was undone
        before it was published leaves some. A table without columns belongs to no definition, or to an
        invalidated one.
        """
        return len(columns) > 0 and len(self._lake.columns(table)) > len(columns) + len(SYSTEM_COLUMNS)

    def _drop_unpublished_columns(self, table: str, columns: Iterable[str]) -> None:
        """Drops the columns that a published definition does not select from its rows."""
        published_columns = {name.lower() for name in (*columns, *SYSTEM_COLUMNS)}
        for column in describe(self._lake, table):
            if column.name.lower() not in published_columns:
                self._lake.select(f"alter table {table} drop column {identifier(column.name)}")

    # --- Branches ---

    def branches(self, tables: Iterable[str]) -> Branches:
        """The branches of tables, with the snapshots at their heads."""
        query = _branches_query(tables)
        return _collect_branches(self._lake.select(query) if query else [])

    def _read_history(self, tables: Sequence[str]) -> tuple[Branches, dict[int, int | None]]:
        """The branches of tables and of `core.releases`, and the parents of the newest Iceberg snapshots of the tables.

        What a run has just staged is among a table's newest snapshots; one with many commits has thousands.
        """
        snapshots_query = "(select snapshot_id, parent_id from {}.snapshots order by committed_at desc limit 100)"
        parents_query = union_all(snapshots_query.format(table) for table in dict.fromkeys(tables))
        queries = [_branches_query([RELEASES, *tables]), parents_query]
        heads, *snapshots = self._lake.select_all(queries if tables else queries[:1])
        return _collect_branches(heads), {row["snapshot_id"]: row["parent_id"] for rows in snapshots for row in rows}

    def _make_fast_forward(self, table: str, branch: str) -> str:
        """Moves a table's main to the head of a branch; Iceberg refuses it if main has moved in the meantime."""
        return f"call system.fast_forward('{self.qualified(table)}', 'main', '{branch}')"

    def drop_branches(self, table_branches: Iterable[tuple[str, str]]) -> None:
        """Drops branches, as (table, branch), that exist; those of one table one after another, because two statements
        would conflict.
        """
        statements_by_table: dict[str, list[str]] = {}
        for table, branch in table_branches:
            statement = f"alter table {self.qualified(table)} drop branch if exists {branch}"
            statements_by_table.setdefault(table, []).append(statement)
        for statements in zip_longest(*statements_by_table.values()):
            self._lake.select_all([statement for statement in statements if statement])

    def qualified(self, table: str) -> str:
        """A table's name with its catalog: for `core.events` Iceberg looks for a catalog `core` first, and logs a
        warning with a stack trace.
        """
        if not self._catalog:
            (row,) = self._lake.select("select current_catalog() as catalog")
            self._catalog = row["catalog"]
        return f"{self._catalog}.{table}"

    # --- dbt's cache ---

    def _list_published_tables(self) -> list[str]:
        """The tables of all models of the project with a watermark."""
        models = [node for node in self._run.graph.nodes.values() if is_published(node)]
        return [table for node in models if node["name"] in self._run.watermarks for table in model_tables(node)]

    def _assert_cache_fresh(self, tables: Iterable[str]) -> None:
        """Refuses a run if dbt's list of tables differs from the catalog's: the run would create existing tables again,
        and duplicate their rows.

        If a table is dropped while Spark lists the schema, dbt-spark takes Spark's error for a schema without tables;
        and another run may have created and published tables since. tables: those that must be listed if they exist.
        """
        unlisted_tables = [table for table in tables if not self._lake.exists(table)]
        for schema in dict.fromkeys(table.partition(".")[0] for table in unlisted_tables):
            if not self._lake.select(f"show databases like '{schema}'"):
                continue
            for row in self._lake.select(f"show tables in {schema}"):
                if f"{schema}.{row['tableName']}" in unlisted_tables:
                    raise CompilationError(
                        f"The tables of {schema} changed while dbt listed them ({row['tableName']}): "
                        "another process creates or drops tables. Run it again."
                    )

    def last_op(self, definition: str) -> int:
        """The last op of a definition: of its log, else of its dropped logs. No id is used twice."""
        if watermark := self._run.published(definition):
            assert watermark.last_op is not None, "each release of a definition has its last op"
            return watermark.last_op
        if not self._run.watermarks:
            return 0
        (row,) = self._lake.select(
            f"select max(last_op) as last_op from {RELEASES} where model = {literal(definition)}"
        )
        return row["last_op"] or 0

    def check_schema(self, definition: Node) -> None:
        """Rejects a definition that has published into another schema: its op ids would restart there."""
        name = definition["name"]
        if name not in self._run.watermarks:
            return
        (row,) = self._lake.select(
            f"select max_by(`table`, release_id) as last_table from {RELEASES}"
            f" where model = {literal(name)} and not endswith(`table`, '__ops')"
        )
        schema = str(row["last_table"]).partition(".")[0]
        if row["last_table"] and schema != definition["schema"]:
            problem = f"the schema is '{definition['schema']}', but '{schema}' when {name} was published"
            raise definition_error(definition, problem, "Set the schema back, or give the model another name")


def _overtaken(newest_release: int, seen_releases: Collection[int | None]) -> CompilationError:
    seen = ", ".join(map(str, sorted(release or 0 for release in seen_releases)))
    return CompilationError(
        f"Nothing was published (core.releases): another run published {newest_release} during this run, "
        f"which is based on {seen}. Run it again."
    )


def _branches_query(tables: Iterable[str]) -> str:
    return union_all(
        f"select '{table}' as table_name, name, snapshot_id from {table}.refs where type = 'BRANCH'"
        for table in dict.fromkeys(tables)
    )


def _collect_branches(rows: Iterable[Mapping[str, Any]]) -> Branches:
    branches: Branches = {}
    for row in rows:
        branches.setdefault(row["table_name"], {})[row["name"]] = row["snapshot_id"]
    return branches


def _find_diverged(
    table_branches: Iterable[tuple[str, str]], branches: Branches, parents: Mapping[int, int | None]
) -> list[str]:
    """The tables whose main is not an ancestor of the head of their branch: Iceberg would not fast-forward it."""
    heads = {
        table: branches[table][branch]
        for table, branch in table_branches
        if "main" in branches.get(table, {}) and branch in branches[table]
    }
    return [table for table, head in heads.items() if branches[table]["main"] not in _find_lineage(head, parents)]


def _find_lineage(head: int | None, parents: Mapping[int, int | None]) -> set[int]:
    """A snapshot and those before it, as far as they are known."""
    lineage: set[int] = set()
    while head and head not in lineage:
        lineage.add(head)
        head = parents.get(head)
    return lineage
