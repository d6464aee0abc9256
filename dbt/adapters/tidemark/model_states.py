"""`core.model_states`: the models that published nothing in this run, written after the release.

These are models that failed, or depend on a failed node, and definitions that wait. Models that the run did not select
keep their state. If no state has changed, nothing is written.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dbt.adapters.tidemark.manifest import NodeResult, Publication, is_test
from dbt.adapters.tidemark.project_graph import ProjectGraph, is_published, names
from dbt.adapters.tidemark.run_state import RunState

_TABLE = "core.model_states"
_REASON_LENGTH = 500


@dataclass(frozen=True)
class ModelState:
    """The state of a model that published nothing. state: failed or waiting. since: microseconds since 1970; None for
    now.
    """

    state: str
    reason: str
    since: int | None = None

    def same_as(self, other: "ModelState | None") -> bool:
        """Whether two states are the same but for numbers, such as those of Spark's tasks: they differ in each run."""
        return (
            other is not None
            and self.state == other.state
            and re.sub("[0-9]+", "0", self.reason) == re.sub("[0-9]+", "0", other.reason)
        )


def record_states(results: Sequence[NodeResult], publications: Iterable[Publication], run: RunState) -> None:
    """Writes the states of the models of a run whose `publications` are published."""
    if not run.lake.exists(_TABLE):
        return
    query = f"select model, state, reason, unix_micros(since) as since from {_TABLE}"
    previous_states = {
        row["model"]: ModelState(row["state"], row["reason"], row["since"]) for row in run.lake.select(query)
    }
    models = names(filter(is_published, run.graph.nodes.values()))
    run_models = names(filter(is_published, (run.graph.nodes.get(result.node.unique_id, {}) for result in results)))
    states = {name: state for name, state in previous_states.items() if name in models and name not in run_models}
    for name, state in unpublished_states(results, publications, run.graph).items():
        previous_state = previous_states.get(name)
        states[name] = previous_state if previous_state is not None and state.same_as(previous_state) else state
    if states != previous_states:
        statement = run.lake.render("write_model_states", states=states) if states else f"delete from {_TABLE}"
        run.lake.select(statement)


def unpublished_states(
    results: Sequence[NodeResult], publications: Iterable[Publication], graph: ProjectGraph
) -> dict[str, ModelState]:
    """The states of Tidemark's models that should have published something and did not."""
    reports = {publication.unique_id: publication.report for publication in publications}
    states = {}
    for result in results:
        if not is_published(graph.nodes.get(result.node.unique_id, {})):
            continue
        if result.node.unique_id not in reports:
            states[result.node.name] = ModelState("failed", _find_failure_reason(result, results, graph))
        elif reports[result.node.unique_id].is_waiting:
            states[result.node.name] = ModelState("waiting", str(result.message))
    return states


def _find_failure_reason(result: NodeResult, results: Iterable[NodeResult], graph: ProjectGraph) -> str:
    """The error of a failed model; if it is not published because of other nodes, the first of these with its error."""
    if _has_failed(result):
        return first_line(str(result.message))
    lineage = graph.ancestors(result.node.unique_id) | {result.node.unique_id}
    for failed_result in filter(_has_failed, results):
        affected_ids = (
            graph.tested(failed_result.node.depends_on.nodes)
            if is_test(failed_result)
            else {failed_result.node.unique_id}
        )
        if affected_ids & lineage:
            return f"{failed_result.node.name}: {first_line(str(failed_result.message))}"
    return "a dependency was not finished"


def _has_failed(result: NodeResult) -> bool:
    return str(result.status) in {"error", "fail", "runtime error"}


def first_line(message: str) -> str:
    """The first informative line of an error of dbt, Spark or py4j: these begin with headings, and end with plans and
    stack traces.
    """
    for line in map(str.strip, message.splitlines()):
        is_heading = line.endswith((")", "Error")) or line.startswith("An error occurred while calling")
        if line and not is_heading:
            return line.removeprefix(": ")[:_REASON_LENGTH]
    return message[:_REASON_LENGTH]
