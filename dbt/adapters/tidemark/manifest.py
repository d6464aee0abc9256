"""What a release publishes: the models that passed, and a row for each of their tables. Pure."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from dbt.adapters.tidemark.project_graph import ProjectGraph, is_published, model_tables
from dbt.adapters.tidemark.run_state import Report, RunState
from dbt.adapters.tidemark.watermarks import newest_checkpoint

# Branches of tables with the Iceberg snapshot at their head: {table: {branch: snapshot_id}}.
Branches = dict[str, dict[str, int]]


class NodeResult(Protocol):
    """dbt's result of a node."""

    node: Any
    status: Any
    message: Any


@dataclass(frozen=True)
class Publication:
    """The tables of a model that a release publishes or drops. unique_id: of a model of this run."""

    name: str
    tables: tuple[str, ...]
    report: Report
    unique_id: str = ""
    dropped: bool = False


@dataclass(frozen=True)
class ManifestRow:
    """A table of a release; the first one of a model has its positions. columns, view_tables, evaluation: JSON."""

    checkpoint_id: int
    model: str
    table: str
    snapshot_id: int | None
    branch: str
    positions: Mapping[str, Any]
    definition_hash: str | None
    columns: str
    view_tables: str | None
    evaluation: str | None
    dropped: bool
    last_op: int | None
    has_integer_keys: bool | None


def manifest_rows(publications: Iterable[Publication], branches: Branches, branch: str) -> list[ManifestRow]:
    """The rows of a release; `branches` has the staged snapshots on `branch`."""
    rows = []
    for publication in publications:
        report = publication.report
        for index, table in enumerate(publication.tables):
            rows.append(
                ManifestRow(
                    checkpoint_id=newest_checkpoint(report.positions),
                    model=publication.name,
                    table=table,
                    snapshot_id=branches.get(table, {}).get(branch),
                    branch=branch,
                    positions={} if index else report.positions,
                    definition_hash=report.definition_hash,
                    columns=json.dumps(report.columns),
                    view_tables=json.dumps(report.view_tables) if report.view_tables else None,
                    evaluation=json.dumps(report.evaluation) if report.evaluation and not index else None,
                    dropped=publication.dropped,
                    last_op=report.last_op,
                    has_integer_keys=report.has_integer_keys,
                )
            )
    return rows


def dropped_tables(definition: str, table: str, last_op: int | None = None) -> list[Publication]:
    """The rows of a definition's dropped tables: readers do not look for their snapshots from this release on.

    They also record the last op of its log. Without `last_op` only the rows were dropped.
    """
    rows = Publication(definition, (table,), Report(positions={}), dropped=True)
    if last_op is None:
        return [rows]
    return [rows, replace(rows, tables=(f"{table}__ops",), report=Report(positions={}, last_op=last_op))]


def publishable_models(results: Iterable[NodeResult], run: RunState) -> list[Publication]:
    """The models that a run may publish: those that succeeded, whose data tests all ran and passed, and whose
    ancestors meet the same conditions.
    """
    results = list(results)
    failed_ids = _find_failed_nodes(results, run.graph)
    publications = []
    for result in results:
        node = run.graph.nodes.get(result.node.unique_id, {})
        report = run.reports.get(result.node.unique_id)
        if report is None or str(result.status) != "success" or not is_published(node):
            continue
        if failed_ids.isdisjoint(run.graph.ancestors(result.node.unique_id) | {result.node.unique_id}):
            publications.append(Publication(node["name"], tuple(model_tables(node)), report, result.node.unique_id))
    return publications


def _find_failed_nodes(results: list[NodeResult], graph: ProjectGraph) -> set[str]:
    """The models that failed, and the nodes whose tests failed or did not run."""
    failed_ids: set[str] = set()
    for result in results:
        if str(result.node.resource_type) == "model" and str(result.status) != "success":
            failed_ids.add(result.node.unique_id)
        elif is_test(result) and str(result.status) not in {"pass", "warn"}:
            failed_ids |= graph.tested(result.node.depends_on.nodes)
    finished_ids = {result.node.unique_id for result in results}
    for unique_id in graph.selected - finished_ids:
        if unique_id.startswith("test."):
            failed_ids |= graph.tested(graph.nodes[unique_id]["depends_on"]["nodes"])
    return failed_ids


def is_test(result: NodeResult) -> bool:
    """Whether a result is of a data test or a unit test."""
    return str(result.node.resource_type) in {"test", "unit_test"}


def has_advanced(publication: Publication, run: RunState) -> bool:
    """Whether a model has advanced past its watermark, or its definition has changed."""
    report, watermarks = publication.report, run.watermarks.get(publication.name, {})
    return any(
        source not in watermarks
        or watermarks[source].checkpoint_id != point.checkpoint_id
        or watermarks[source].definition_hash != report.definition_hash
        for source, point in report.positions.items()
    )
