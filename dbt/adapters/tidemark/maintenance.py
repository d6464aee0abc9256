"""The maintenance of the models' tables: logs and files are compacted, and rows that nothing needs any more are purged.

Each table is a release of its own (`Releases.publish_maintenance`), so completed steps do not wait for later ones, and
readers see a table before or after. Each step yields a line for each table that it changed.

superseded_share: a log is compacted if at least this share of its ops is superseded, a file is rewritten if more than
this share of its rows is deleted, and releases and checkpoints are purged if at least this share of their rows is
superseded. small_files: the files of a table are compacted if it has at least so many small ones. keep_seconds: how
long tombstones stay after every definition is past them, and superseded releases and checkpoints.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

from dbt.adapters.tidemark.lake_statements import literal
from dbt.adapters.tidemark.project_graph import is_published, names
from dbt.adapters.tidemark.releases import Releases
from dbt.adapters.tidemark.run_state import RELEASES, RunState

_SMALL_FILE_BYTES, _FILE_BYTES = 16 * 2**20, 128 * 2**20


class Maintenance:
    """The maintenance of one invocation."""

    def __init__(self, run: RunState, releases: Releases) -> None:
        self._run, self._lake, self._releases = run, run.lake, releases
        self._has_changed = False

    def maintain(self, arguments: Mapping[str, Any], first: int | None = None) -> Iterator[str]:
        """All steps. With `first`, those from the step of this number on, until one has changed a table: then the last
        line is the number of the next step, if there is one.
        """
        self._releases.finish_interrupted()
        steps = self._list_steps(**arguments)
        for number, step in islice(enumerate(steps), first or 0, None):
            yield from step()
            if first is not None and self._has_changed and number + 1 < len(steps):
                yield str(number + 1)
                return

    def _list_steps(
        self,
        superseded_share: float,
        small_files: int,
        keep_seconds: float,
        iceberg_snapshot_retention_seconds: float,
    ) -> list[Callable[[], Iterator[str]]]:
        """The steps, in order. iceberg_snapshot_retention_seconds: releases stay as long as the snapshots they name."""
        tables = self._list_tables()
        # A log whose rows were dropped manually is created again by the next run.
        logs = [
            (model, table)
            for model, table in tables
            if table.endswith("__ops") and self._lake.exists(table.removesuffix("__ops"))
        ]
        release_seconds = max(keep_seconds, iceberg_snapshot_retention_seconds)
        return [
            *(partial(self.compact_log, model, table, superseded_share) for model, table in logs),
            partial(self.purge_tombstones, keep_seconds),
            partial(self.purge_checkpoints, keep_seconds, superseded_share),
            *(partial(self.compact_files, model, table, superseded_share, small_files) for model, table in tables),
            partial(self.purge_releases, release_seconds, superseded_share),
            partial(self.compact_releases, small_files),
        ]

    def _list_tables(self) -> list[tuple[str, str]]:
        """The existing tables of all published models that are still of such a kind, with the models' names; a log
        before its rows.
        """
        if not self._run.watermarks:
            return []
        models = names(filter(is_published, self._run.graph.nodes.values())) & self._run.watermarks.keys()
        rows = self._lake.select(f"select distinct model, `table` from {RELEASES} order by model, `table` desc")
        return [
            (row["model"], row["table"]) for row in rows if row["model"] in models and self._lake.exists(row["table"])
        ]

    def _publish(self, model: str, table: str, statements: Sequence[str], summary: str) -> Iterator[str]:
        outcome = self._releases.publish_maintenance(model, table, statements)
        if outcome == "published":
            self._has_changed = True
            yield f"{table}: {summary}"
        elif outcome == "overtaken":
            yield f"{table}: a run wrote to it in the meantime; left to the next maintenance"

    # --- Logs and files ---

    def compact_log(self, model: str, log_table: str, superseded_share: float) -> Iterator[str]:
        """Compacts a definition's op log, if enough of its ops are PUTs whose rows were removed or replaced."""
        (counts,) = self._lake.select(
            f"select (select count(*) from {log_table}) as ops,"
            f" (select count(*) from {log_table} where op = 'PUT') as puts,"
            f" (select count(*) from {log_table.removesuffix('__ops')}) as live_rows"
        )
        superseded = counts["puts"] - counts["live_rows"]
        if superseded > 0 and superseded >= superseded_share * counts["ops"]:
            statement = f"insert overwrite {log_table} {self._lake.render('compacted_log', log_table=log_table)}"
            summary = f"compacted, {superseded} of {counts['ops']} ops were superseded PUTs"
            yield from self._publish(model, log_table, [statement], summary)

    def compact_files(self, model: str, table: str, deleted_share: float, small_files: int) -> Iterator[str]:
        """Compacts a published table's small files, and rewrites files with many deleted rows.

        A definition's files are sorted, so that few of them hold a bucket.
        """
        counts = self._count_files(table)
        if counts["small"] < small_files and counts["deleted"] <= deleted_share * counts["all_rows"]:
            return
        order = ""
        if (watermark := self._run.published(model)) and watermark.definition_hash:
            order = "`bucket`, op_id" if table.endswith("__ops") else "`bucket`, _op_id"
        statements = [
            f"alter table {self._releases.qualified(table)} create branch {self._releases.branch}",
            self._make_rewrite(table, deleted_share, small_files, self._releases.branch, order),
        ]
        summary = (
            f"files rewritten, {counts['small']} were small and {counts['deleted']} of their {counts['all_rows']} rows "
            "deleted"
        )
        yield from self._publish(model, table, statements, summary)

    def compact_releases(self, small_files: int) -> Iterator[str]:
        """Compacts the small files of `core.releases`, on main, because a release is committed by this table.

        A concurrent run that is about to publish finds main moved, and is refused.
        """
        if self._run.watermarks and self._count_files(RELEASES)["small"] >= small_files:
            self._lake.select(self._make_rewrite(RELEASES, 1, small_files, "main"))
            self._has_changed = True
            yield f"{RELEASES}: files rewritten"

    def _count_files(self, table: str) -> Mapping[str, int]:
        """Counts from a table's metadata. small: data files; all_rows; deleted: rows deleted by deletion vectors."""
        (counts,) = self._lake.select(
            f"select count_if(content = 0 and file_size_in_bytes < {_SMALL_FILE_BYTES}) as small,"
            " coalesce(sum(if(content = 0, record_count, 0)), 0) as all_rows,"
            f" coalesce(sum(if(content = 1, record_count, 0)), 0) as deleted from {table}.files"
        )
        return counts

    def _make_rewrite(self, table: str, deleted_share: float, small_files: int, branch: str, order: str = "") -> str:
        options = {
            "min-input-files": small_files,
            "min-file-size-bytes": _SMALL_FILE_BYTES,
            "target-file-size-bytes": _FILE_BYTES,
            "max-file-size-bytes": 2**63 - 1,
            "delete-ratio-threshold": deleted_share,
        }
        arguments = {"table": literal(self._releases.qualified(table)), "branch": literal(branch)}
        if order:
            arguments |= {"strategy": "'sort'", "sort_order": literal(order)}
        arguments["options"] = f"map({', '.join(f'{literal(k)}, {literal(str(v))}' for k, v in options.items())})"
        named_arguments = ", ".join(f"{name} => {value}" for name, value in arguments.items())
        return f"call system.rewrite_data_files({named_arguments})"

    # --- Rows ---

    def purge_tombstones(self, keep_seconds: float) -> Iterator[str]:
        """Deletes the tombstones of `core.row_state` that no process needs any more.

        These are the tombstones of old runs that every definition is past, also a definition whose model was deleted;
        only in tables without a queued or running snapshot, which could bring a deleted row back.
        """
        passed_ids = self._find_passed_checkpoints(keep_seconds)
        settled_tables = self._lake.select(self._lake.render("settled_tables")) if passed_ids else []
        if not settled_tables:
            return
        sources = " or ".join(
            f"(source = {literal(source)} and checkpoint_id <= {checkpoint_id})"
            for source, checkpoint_id in passed_ids.items()
        )
        tables = ", ".join(literal(row["table_id"]) for row in settled_tables)
        tombstones = f"deleted and ({sources}) and table_id in ({tables})"
        (row,) = self._lake.select(f"select count(*) as tombstones from core.row_state where {tombstones}")
        if row["tombstones"]:
            statement = f"delete from core.row_state where {tombstones}"
            summary = f"{row['tombstones']} tombstones purged"
            yield from self._publish("row_state", "core.row_state", [statement], summary)

    def _find_passed_checkpoints(self, keep_seconds: float) -> dict[str, int]:
        """By source: the newest checkpoint that is old enough, and that every definition over the source is past."""
        watermarks = self._run.watermarks
        if "row_state" not in watermarks:
            return {}
        return {
            source: min(
                [checkpoint_id]
                + [
                    by_source[source].checkpoint_id
                    for model, by_source in watermarks.items()
                    if source in by_source and (model == "row_state" or by_source[source].definition_hash)
                ]
            )
            for source, checkpoint_id in self._read_old_checkpoints(keep_seconds).items()
        }

    def _read_old_checkpoints(self, keep_seconds: float) -> dict[str, int]:
        """By source: the newest checkpoint that is old enough."""
        rows = self._lake.select(
            "select source, max(checkpoint_id) as checkpoint_id from core.checkpoints"
            f" where created_at <= current_timestamp() - make_dt_interval(0, 0, 0, {keep_seconds}) group by source"
        )
        return {row["source"]: row["checkpoint_id"] for row in rows}

    def purge_checkpoints(self, keep_seconds: float, superseded_share: float) -> Iterator[str]:
        """Deletes from `core.checkpoints` those that are older than the newest old one of each source, which stays:
        maintenance needs it to know what is old.
        """
        old_ids = self._read_old_checkpoints(keep_seconds) if "checkpoints" in self._run.watermarks else {}
        if not old_ids:
            return
        superseded = " or ".join(
            f"(source = {literal(source)} and checkpoint_id < {checkpoint_id})"
            for source, checkpoint_id in old_ids.items()
        )
        (counts,) = self._lake.select(
            f"select count(*) as all_rows, count_if({superseded}) as superseded from core.checkpoints"
        )
        if _reaches_share(counts, superseded_share):
            statement = f"delete from core.checkpoints where {superseded}"
            summary = f"{counts['superseded']} old checkpoints purged"
            yield from self._publish("checkpoints", "core.checkpoints", [statement], summary)

    def purge_releases(self, keep_seconds: float, superseded_share: float) -> Iterator[str]:
        """Deletes the rows of `core.releases` that were superseded, see the macro `superseded_releases`.

        Branches of refused or killed runs are dropped at the same age.
        """
        if not self._run.watermarks:
            return
        stale_branches = self._lake.select(self._lake.render("stale_branches", keep_seconds=keep_seconds))
        self._releases.drop_branches((RELEASES, row["name"]) for row in stale_branches)
        newest_release = self._run.newest_release
        superseded = self._lake.render("superseded_releases", keep_seconds=keep_seconds, newest_release=newest_release)
        (counts,) = self._lake.select(
            f"select (select count(*) from {RELEASES}) as all_rows, (select count(*) from ({superseded})) as superseded"
        )
        if _reaches_share(counts, superseded_share):
            self._releases.change_manifest(
                f"merge into {RELEASES} as manifest using ({superseded}) as superseded"
                " on manifest.model = superseded.model and manifest.`table` = superseded.`table`"
                " and manifest.release_id = superseded.release_id"
                " when matched and not manifest.dropped then delete"
            )
            self._has_changed = True
            yield f"{RELEASES}: {counts['superseded']} superseded rows purged"


def _reaches_share(counts: Mapping[str, int], superseded_share: float) -> bool:
    return counts["superseded"] > 0 and counts["superseded"] >= superseded_share * counts["all_rows"]
