"""What the next run will do with each definition; decided by the same macros that the run goes by."""

import dataclasses
import json
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from ingest.common.errors import one_line, printable
from ingest.project.dbt_project import DEFINITIONS, FAILED, Outcome, Project, first_line, repeated_if_overtaken


@dataclass(frozen=True)
class Step:
    """One definition. state: new, changed, unchanged, gone or refused; rows: of its inputs, to be evaluated."""

    definition: str
    state: str
    reason: str
    rows: int

    def to_json(self) -> str:
        """As one JSON object."""
        return json.dumps(dataclasses.asdict(self))


def make(spark: SparkSession, target: str | None = None, folder: Path | str = ".") -> list[Step]:
    """The plan of the project in `folder`, in the order of the definitions' names. Runs nothing.

    Raises Failure for what is wrong with all of it; what is wrong with a definition is the reason why it is refused.
    """
    project = Project(target, folder)
    project.compile_views()
    definitions = project.definitions
    selected = [f"config.materialized:{kind}" for kind in DEFINITIONS]
    outcomes, failure = project.attempt("run", "--select", *selected, "--vars", "{plan_only: true}")
    failed = {outcome.name for outcome in outcomes if outcome.status in FAILED}
    if failure and not (failed and failed.issubset(definitions)):
        raise failure
    steps = [_step(outcome) for outcome in outcomes if outcome.name in definitions]
    others = {node.name for node in project.manifest.nodes.values()}
    for name in _gone(spark, definitions):
        why = "its model is no definition any more" if name in others else "its model is no longer there"
        steps.append(Step(name, "gone", f"{why}; what it left stays until --prune", 0))
    return sorted(steps, key=lambda step: step.definition)


def _step(outcome: Outcome) -> Step:
    if told := outcome.report:
        return Step(outcome.name, told["state"], told["reason"], told["rows"])
    why = first_line(outcome.message) if outcome.status in FAILED else "what it depends on is refused"
    return Step(outcome.name, "refused", one_line(why), 0)


def prune(steps: list[Step], target: str | None = None, folder: Path | str = ".") -> list[str]:
    """Drops the tables of the definitions that a plan says are gone; gives their names. Raises Failure."""
    project = Project(target, folder)
    gone = [step.definition for step in steps if step.state == "gone"]
    prune_one = repeated_if_overtaken(project.operation)
    for name in gone:
        prune_one("prune", definition=name)
    return gone


def render(steps: list[Step]) -> None:
    """Print a plan as a table."""
    table = Table("definition", "state", "why", "rows to evaluate")
    table.columns[3].justify = "right"
    colours = {"new": "green", "changed": "yellow", "gone": "red", "refused": "red"}
    for step in steps:
        why = printable(step.reason)
        table.add_row(step.definition, step.state, why, f"{step.rows:,}", style=colours.get(step.state))
    Console(markup=False, emoji=False).print(table)


def _gone(spark: SparkSession, definitions: Collection[str]) -> list[str]:
    """Those that have a mark, or an op log that no run has published yet, and are none of these."""
    found: set[str] = set()
    if spark.catalog.tableExists("core.progress"):
        rows = spark.sql("SELECT DISTINCT model FROM core.progress WHERE definition_hash IS NOT NULL").collect()
        found |= {row["model"] for row in rows}
    if spark.catalog.databaseExists("buckets"):
        tables = {row["tableName"] for row in spark.sql("SHOW TABLES IN buckets").collect()}
        logged = {table.removesuffix("__ops") for table in tables if table.endswith("__ops")}.difference(definitions)
        found |= {name for name in logged if "target_op" in spark.table(f"buckets.{name}__ops").columns}
    return sorted(found.difference(definitions))
