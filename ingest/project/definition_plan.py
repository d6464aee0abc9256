"""What the next run will do with each definition; decided by the same code as the run."""

import dataclasses
import json
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from ingest.common.errors import UsageError, first_message_line, one_line, printable
from ingest.lake.model_tables import list_op_logs, read_definition_tables
from ingest.project.dbt_package import DEFINITIONS
from ingest.project.dbt_project import FAILED, NodeResult, Project, retry_on_concurrent_publish


@dataclass(frozen=True)
class PlannedChange:
    """One definition. state: new, changed, unchanged, waiting, deleted or invalid. rows: input rows to evaluate."""

    definition: str
    state: str
    reason: str
    rows: int

    def to_json(self) -> str:
        """As one JSON object."""
        return json.dumps(dataclasses.asdict(self))


def make_plan(spark: SparkSession, target: str | None = None, folder: Path | str = ".") -> list[PlannedChange]:
    """The plan of the project in `folder`, sorted by definition. Runs nothing.

    Raises Failure for an error of the whole project; an error of a definition is the reason why it is invalid.
    """
    project = Project(target, folder)
    project.compile_views()
    definitions = project.definitions
    selectors = [f"config.materialized:{kind}" for kind in DEFINITIONS]
    outcomes, failure = project.try_invoke("run", "--select", *selectors, "--vars", "{tidemark_plan_only: true}")
    failed_names = {outcome.name for outcome in outcomes if outcome.status in FAILED}
    if failure and not (failed_names and failed_names.issubset(definitions)):
        raise failure
    steps = [_parse_step(outcome) for outcome in outcomes if outcome.name in definitions]
    steps += [
        PlannedChange(name, "deleted", f"{reason}; its tables stay until `tidemark prune`", 0)
        for name, (reason, _) in find_deleted(spark, project).items()
    ]
    return sorted(steps, key=lambda step: step.definition)


def _parse_step(outcome: NodeResult) -> PlannedChange:
    if "state" in (response := outcome.response):
        return PlannedChange(outcome.name, response["state"], response["reason"], response["rows"])
    reason = (
        first_message_line(outcome.message)
        if outcome.status in FAILED
        else "a definition that it depends on is invalid"
    )
    return PlannedChange(outcome.name, "invalid", one_line(reason), 0)


def prune_definitions(
    spark: SparkSession, names: Collection[str] = (), target: str | None = None, folder: Path | str = "."
) -> list[str]:
    """Drops the tables of deleted definitions: of these, or of all; returns their names.

    Raises UsageError for a name that is not a deleted definition, before anything is dropped; Failure.
    """
    project = Project(target, folder)
    deleted_definitions = find_deleted(spark, project)
    for name in names:
        if name not in deleted_definitions:
            hint = (
                f"Deleted definitions: {', '.join(deleted_definitions)}"
                if deleted_definitions
                else "There is no deleted definition"
            )
            raise UsageError("not a deleted definition", name, hint)
    prune_definition = retry_on_concurrent_publish(project.run_operation)
    pruned_names = sorted(set(names)) or list(deleted_definitions)
    for name in pruned_names:
        prune_definition("prune", definition=name, schema=deleted_definitions[name][1])
    return pruned_names


def render_plan(steps: list[PlannedChange]) -> None:
    """Print a plan as a table."""
    table = Table("definition", "state", "why", "rows to evaluate")
    table.columns[3].justify = "right"
    colours = {"new": "green", "changed": "yellow", "waiting": "cyan", "deleted": "red", "invalid": "red"}
    for step in steps:
        reason = printable(step.reason)
        table.add_row(step.definition, step.state, reason, f"{step.rows:,}", style=colours.get(step.state))
    Console(markup=False, emoji=False).print(table)


def _is_op_log(spark: SparkSession, table: str) -> bool:
    """Whether a table is an op log; false if it was dropped in the meantime."""
    try:
        return "superseded_by" in spark.table(table).columns
    except AnalysisException:
        if spark.catalog.tableExists(table):
            raise
        return False


def find_deleted(spark: SparkSession, project: Project) -> dict[str, tuple[str, str]]:
    """The definitions that the lake has, published or not, and the project no longer has: by name, the reason and the
    schema of their tables.
    """
    definitions = project.definitions
    schemas = {
        table.partition(".")[2]: table.partition(".")[0] for table in _find_unpublished_tables(spark, definitions)
    }
    if spark.catalog.tableExists("core.model_watermarks"):
        tables = read_definition_tables(spark)
        rows = spark.sql("SELECT DISTINCT model FROM core.model_watermarks WHERE definition_hash IS NOT NULL").collect()
        schemas |= {row.model: tables.get(row.model, "buckets").partition(".")[0] for row in rows}
    model_names = {node.name for node in project.manifest.nodes.values()}
    return {
        name: (
            "its model is no longer a definition" if name in model_names else "its model no longer exists",
            schemas[name],
        )
        for name in sorted(schemas.keys() - set(definitions))
    }


def _find_unpublished_tables(spark: SparkSession, definitions: Collection[str]) -> list[str]:
    """The tables that have an op log and belong to no definition of the project."""
    tables = (table for table in list_op_logs(spark) if table.partition(".")[2] not in definitions)
    return [table for table in tables if _is_op_log(spark, f"{table}__ops")]
