"""The result of a benchmark: Tidemark (`ours`) against another program, and whether the target is reached."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

from rich.table import Table

from bench.resource_usage import Run


@dataclass(frozen=True)
class Result:
    """ours, other: medians in `unit`; other is None if there is no comparison. mark: the target for the ratio (ours /
    other), or for ours if there is no other: a minimum, or a maximum if lower is better. None: there is no target.
    """

    name: str
    ours: float
    other: float | None
    unit: str
    mark: float | None = None
    higher_is_better: bool = True
    runs: dict[str, list[float]] = field(default_factory=dict)
    cpu_seconds: dict[str, dict[str, float]] = field(default_factory=dict)
    peak_mib: dict[str, dict[str, float]] = field(default_factory=dict)
    stages: dict[str, dict[str, float]] = field(default_factory=dict)

    @property
    def ratio(self) -> float | None:
        """Ours / other."""
        return None if self.other is None else self.ours / self.other

    @property
    def holds(self) -> bool | None:
        """Whether the target is reached; None if there is none."""
        value = self.ours if self.ratio is None else self.ratio
        if self.mark is None:
            return None
        return value >= self.mark if self.higher_is_better else value <= self.mark

    def summary(self) -> str:
        """One line, with the CPU seconds of each side."""
        cpu = ", ".join(f"{side} {sum(seconds.values()):.1f}" for side, seconds in self.cpu_seconds.items() if seconds)
        comparison = "" if self.other is None else f" against {_number(self.other)}"
        return f"{self.name}: {_number(self.ours)}{comparison} {self.unit} (CPU seconds: {cpu or 'not measured'})"

    def as_json(self) -> dict[str, Any]:
        """All fields, as JSON types."""
        return {**asdict(self), "ratio": self.ratio, "holds": self.holds}


def compare_rates(name: str, ours: Sequence[Run], other: Sequence[Run], unit: str, mark: float | None = None) -> Result:
    """Compares amounts per second."""
    return Result(
        name,
        median(run.rate for run in ours),
        median(run.rate for run in other),
        unit,
        mark,
        runs={"ours": [run.rate for run in ours], "other": [run.rate for run in other]},
        **summarize_costs({"ours": ours, "other": other}),
    )


def compare_durations(
    name: str, ours: Sequence[Run], other: Sequence[Run] | None = None, mark: float | None = None
) -> Result:
    """Compares seconds, fewer is better; or gives those of ours only."""
    sides = {"ours": ours} if other is None else {"ours": ours, "other": other}
    return Result(
        name,
        median(run.seconds for run in ours),
        None if other is None else median(run.seconds for run in other),
        "s",
        mark,
        higher_is_better=False,
        runs={side: [run.seconds for run in measured] for side, measured in sides.items()},
        **summarize_costs(sides),
    )


def summarize_costs(sides: Mapping[str, Sequence[Run]]) -> dict[str, Any]:
    """Medians of CPU seconds and stages, and the highest peaks, by side."""
    return {
        "cpu_seconds": {side: _medians([run.cpu for run in runs]) for side, runs in sides.items()},
        "peak_mib": {side: _highest([run.peak for run in runs]) for side, runs in sides.items()},
        "stages": {side: _medians([run.stages for run in runs]) for side, runs in sides.items()},
    }


def render_table(results: Sequence[Result]) -> Table:
    """The printed table."""
    table = Table("benchmark", "ours", "other", "unit", "ratio", "mark", "", box=None)
    for result in results:
        table.add_row(
            result.name,
            _number(result.ours),
            _number(result.other),
            result.unit,
            "" if result.ratio is None else f"{result.ratio:.2f}",
            "" if result.mark is None else f"{'≥' if result.higher_is_better else '≤'} {result.mark:g}",
            {True: "holds", False: "[red]missed", None: ""}[result.holds],
        )
    return table


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def _medians(found: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: round(median(one.get(name, 0.0) for one in found), 3) for name in _names(found)}


def _highest(found: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: round(max(one.get(name, 0.0) for one in found), 1) for name in _names(found)}


def _names(found: Sequence[dict[str, float]]) -> list[str]:
    return list(dict.fromkeys(name for one in found for name in one))
