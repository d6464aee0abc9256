"""The state of one invocation of dbt, which all its nodes share: watermarks, positions, ranges and reports.

dbt creates an adapter for each invocation, and the adapter creates one `RunState`. Jinja gets it by `tidemark.run()`.
"""

import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dbt_common.exceptions import CompilationError

from dbt.adapters.tidemark.lake_statements import LakeStatements
from dbt.adapters.tidemark.project_graph import Node, ProjectGraph, names
from dbt.adapters.tidemark.watermarks import (
    WATERMARK_COLUMNS,
    Point,
    Positions,
    Watermark,
    Watermarks,
    add_watermarks,
    newest_release,
)

WATERMARKS = "core.model_watermarks"
RELEASES = "core.releases"
# The models of `core` that a model is built after, and whose positions it can reach.
_CORE_INPUTS = {
    "events": ("checkpoints",),
    "table_status": ("checkpoints",),
    "row_state": ("events", "table_status"),
}


@dataclass(frozen=True)
class SourceRange:
    """What a run processes of one source: the positions [lower, upper). since: the checkpoint of `lower`."""

    source: str
    checkpoint_id: int
    lower: int
    upper: int
    since: int


@dataclass(frozen=True)
class Report:
    """What a materialization did. staged: the tables that it wrote rows to. last_op, has_integer_keys: see `Watermark`.
    is_waiting: whether a definition waits for an input. seen: the newest release that it knew.
    """

    positions: Positions
    staged: Collection[str] = ()
    definition_hash: str | None = None
    columns: Any = field(default_factory=list)
    view_tables: Mapping[str, str] = field(default_factory=dict)
    last_op: int | None = None
    has_integer_keys: bool | None = None
    evaluation: Mapping[str, Any] | None = None
    is_waiting: bool = False
    seen: int = 0


@dataclass(frozen=True)
class InputState:
    """The state of a source table. waiting: its newest snapshot is not admitted. changed_at: the last checkpoint with a
    change. changed_rows: since the oldest watermark of a definition.
    """

    waiting: bool
    changed_at: int = 0
    changed_rows: int = 0


class RunState:
    """The state of an invocation with these nodes."""

    def __init__(self, lake: LakeStatements, graph: ProjectGraph) -> None:
        self.lake, self.graph = lake, graph
        self.reports: dict[str, Report] = {}
        # One definition at a time invalidates what it has published; `invalidated` is the release of the last one.
        self.invalidating = threading.Lock()
        self.invalidated: int | None = None
        self._lock = threading.RLock()
        self._watermarks: Watermarks | None = None
        self._checkpoints: Positions | None = None
        self._input_states: dict[str, InputState] | None = None
        self._skipped_ids: set[str] = set()
        self._scratch_views: list[str] = []
        # The tables that may have changes in this run, as {source, table_name}.
        self.changed_tables: Sequence[Mapping[str, Any]] = ()

    def assert_lake_initialized(self) -> None:
        """Refuses a run in a lake that is not initialized.

        Before the first commit of a source the models have nothing to read. Before a run has created the tables that
        all models are published by, a run that does not select them could publish nothing, and would leave its staged
        rows.
        """
        missing_tables = [table for table in (RELEASES, WATERMARKS) if not self.lake.exists(table)]
        if not missing_tables or not any(self._reads_raw_tables(unique_id) for unique_id in self.graph.selected):
            return
        if not self.lake.exists("raw.snapshot_chunks"):
            raise CompilationError(
                "Nothing was done: no job has written to this lake: raw.snapshot_chunks is missing. "
                "Start with tidemark run, or with tidemark stream and tidemark snapshot."
            )
        if not {_make_core_id(table.removeprefix("core.")) for table in missing_tables} <= self.graph.selected:
            raise CompilationError(
                "Nothing was done: no run has created core.releases and core.model_watermarks yet, by which all models "
                "are published. Build all models first: dbt build."
            )

    def _reads_raw_tables(self, unique_id: str) -> bool:
        checkpoints = _make_core_id("checkpoints")
        return unique_id == checkpoints or checkpoints in self.graph.ancestors(unique_id)

    # --- Watermarks ---

    @property
    def watermarks(self) -> Watermarks:
        """The watermarks by model and source, as at the start of the run; empty in a new lake."""
        with self._lock:
            if self._watermarks is None:
                self._watermarks = self._read_watermarks() if self.lake.exists(WATERMARKS) else {}
            return self._watermarks

    def read_watermarks_again(self) -> Watermarks:
        """Reads the current watermarks: another process may have written them."""
        with self._lock:
            self._watermarks = None
            return self.watermarks

    def write_watermarks(self, release_id: int) -> None:
        """Writes the watermarks of a release, and of those before it whose watermarks are not written yet.

        The table is rewritten as one small file. It is read just before: another process may have written it since the
        run began, or pruned a definition of a release that it has written. If it has written this release, nothing is
        left to write.
        """
        query = self.lake.render("current_watermarks_query", last_written=self.newest_release, release_id=release_id)
        rows = self.lake.select(query)
        written = add_watermarks({}, (row for row in rows if row["is_written"]))
        last_written = newest_release(written)
        watermarks = add_watermarks(
            written, (row for row in rows if not row["is_written"] and row["release_id"] > last_written)
        )
        if last_written < release_id:
            self.lake.select(self.lake.render("write_watermarks", watermarks=watermarks))
        with self._lock:
            self._watermarks = watermarks

    def _read_watermarks(self) -> Watermarks:
        return add_watermarks({}, self.lake.select(f"select {WATERMARK_COLUMNS} from {WATERMARKS}"))

    @property
    def newest_release(self) -> int:
        """The newest release whose watermarks are written; 0 before the first."""
        return newest_release(self.watermarks)

    def published_positions(self, model: str) -> Positions:
        """A model's positions by its watermarks alone."""
        watermarks = self.watermarks.get(model, {})
        return {source: Point(watermark.checkpoint_id, watermark.position) for source, watermark in watermarks.items()}

    def published(self, model: str) -> Watermark | None:
        """One of a definition's watermarks: they differ in their positions only. None before its first release."""
        return next(iter(self.watermarks.get(model, {}).values()), None)

    def published_report(self, model: str) -> Report:
        """The report of a model that stays as it is published."""
        watermark, positions = self.published(model), self.published_positions(model)
        if watermark is None:
            return Report(positions)
        return Report(
            positions,
            definition_hash=watermark.definition_hash,
            columns=watermark.columns,
            view_tables=watermark.view_tables,
            last_op=watermark.last_op,
            has_integer_keys=watermark.has_integer_keys,
        )

    # --- Positions of this run ---

    def positions(self, model: str) -> Positions:
        """The positions of a model of `core` in this run.

        A model that the run does not select is at its watermark. A selected model is at the lowest position of its
        inputs: dbt builds it before the models after it, or skips these. It has no position of a source that an input
        has never processed.
        """
        if _make_core_id(model) not in self.graph.selected:
            return self.published_positions(model)
        if model not in _CORE_INPUTS:
            return self._checkpoints if self._checkpoints is not None else self.published_positions("checkpoints")
        input_positions = [self.positions(core_input) for core_input in _CORE_INPUTS[model]]
        return {
            source: min((positions[source] for positions in input_positions), key=lambda point: point.position)
            for source in input_positions[0]
            if all(source in positions for positions in input_positions)
        }

    def tested_positions(self, model: str) -> Mapping[str, Point | SourceRange]:
        """The checkpoints that a data test of a model of `core` checks.

        In a run that selects the model: the newest checkpoint of each advanced source. In another run, such as
        `dbt test`: that of each source.
        """
        is_selected = _make_core_id(model) in self.graph.selected
        return self.advanced(model) if is_selected else self.positions(model)

    def stage_checkpoints(self, advanced: Mapping[str, int], checkpoint_id: int) -> None:
        """Stores the checkpoint that the model `checkpoints` stages, for the models after it: {source: position}."""
        staged_points = {source: Point(checkpoint_id, position) for source, position in advanced.items()}
        self._checkpoints = {**self.published_positions("checkpoints"), **staged_points}

    def ranges(self, model: str) -> list[SourceRange]:
        """What this run processes in a model of `core`: a range for each source that is past the model's watermark."""
        watermarks: Mapping[str, Point] = self.watermarks.get(model, {})
        start = Point(0, 0)
        return [
            SourceRange(source, point.checkpoint_id, mark.position, point.position, mark.checkpoint_id)
            for source, point in self.positions(model).items()
            if point.position > (mark := watermarks.get(source, start)).position
        ]

    def advanced(self, model: str) -> dict[str, SourceRange]:
        """The ranges by source."""
        return {source_range.source: source_range for source_range in self.ranges(model)}

    # --- Inputs of definitions ---

    @property
    def input_states(self) -> dict[str, InputState]:
        """The state of all inputs, by `<source>.<table>`; read once, by the first definition that is planned."""
        with self._lock:
            if self._input_states is None:
                self._input_states = self._read_input_states()
            return self._input_states

    def _read_input_states(self) -> dict[str, InputState]:
        positions = self.positions("row_state")
        if not positions or not self.lake.exists("core.row_state"):
            return {}
        query = self.lake.render(
            "input_states_query", positions=positions, lowest=self._find_lowest_watermarks(positions)
        )
        waiting: dict[str, bool] = {}
        changes: dict[str, tuple[int, int]] = {}
        for row in self.lake.select(query):
            name = row["name"]
            if row["is_waiting"] is not None:
                waiting[name] = waiting.get(name, False) or row["is_waiting"]
            if row["changed_at"] is not None:
                changes[name] = (row["changed_at"], row["changed_rows"])
        return {name: InputState(is_waiting, *changes.get(name, ())) for name, is_waiting in waiting.items()}

    def _find_lowest_watermarks(self, sources: Iterable[str]) -> dict[str, int]:
        """The checkpoint of each source that every published definition over it is past."""
        definitions = names(self.graph.definitions())
        lowest_ids: dict[str, int] = {}
        for model in definitions.intersection(self.watermarks):
            for source in self.watermarks[model].keys() & set(sources):
                checkpoint_id = self.watermarks[model][source].checkpoint_id
                lowest_ids[source] = min(checkpoint_id, lowest_ids.get(source, checkpoint_id))
        return lowest_ids

    # --- What nodes report ---

    def record(self, unique_id: str, **report: Any) -> None:
        """Ends a materialization: stores its `Report` for `publish`."""
        self.reports[unique_id] = Report(**report, seen=self.newest_release)

    def skip(self, unique_id: str) -> None:
        """Stores that a node's query returns no rows in this run, so that it is not executed."""
        self._skipped_ids.add(unique_id)

    def assert_builds(self, model: Node) -> None:
        """Refuses a model of the strategy `ledger` that is not of this package, or that this command does not select.

        `dbt retry` does not tell what it selects, see `TidemarkAdapter`.
        """
        if not model["unique_id"].startswith("model.tidemark."):
            raise CompilationError(
                f"Nothing was done: '{model['name']}' has the incremental_strategy 'ledger', which only models of the "
                "package tidemark can have. Choose one of dbt-spark's."
            )
        if model["unique_id"] not in self.graph.selected:
            raise CompilationError(
                f"Nothing was done: dbt retry does not build '{model['name']}'. Repeat the command that failed."
            )

    def has_new_rows(self, model: Node) -> bool:
        """Whether a model of `core` appends rows in this run: one of its sources has advanced."""
        return bool(self.advanced(model["name"])) and model["unique_id"] not in self._skipped_ids

    def set_changed_tables(self, tables: Sequence[Mapping[str, Any]]) -> None:
        """Stores which tables may have changes in this run."""
        self.changed_tables = tables

    def add_scratch_view(self, name: str) -> None:
        """Stores the name of a view that this run must drop."""
        self._scratch_views.append(name)

    def take_scratch_views(self) -> list[str]:
        """The names of the views to drop, the last one first. A second call returns none."""
        view_names, self._scratch_views = self._scratch_views[::-1], []
        return view_names


def _make_core_id(model: str) -> str:
    return f"model.tidemark.{model}"
