"""The demo's report: its figures as lines of a table, and its problems."""

from dataclasses import dataclass, field

from ingest.demo.compare import Comparison
from ingest.demo.definitions import EDITED
from ingest.demo.metrics import percentile


@dataclass
class Report:
    """Filled step by step. snapshots: for each bucket table the Iceberg snapshot before and after the edit."""

    snapshot_rows: int = 0
    snapshot_seconds: float = 0.0
    snapshot_changes: int = 0
    steady_seconds: float = 0.0
    steady_changes: int = 0
    steady_events: int = 0
    latencies: list[float] = field(default_factory=list)
    evaluated: int = 0
    ops: int = 0
    differing: int = 0
    snapshots: dict[str, tuple[int, int]] = field(default_factory=dict)
    comparisons: list[Comparison] = field(default_factory=list)

    def problems(self) -> list[str]:
        """The differences from the expected result; empty if there are none."""
        problems = [f"{item.name}: {item.problem}" for item in self.comparisons if item.problem]
        if self.ops != self.differing:
            problems.append(f"{EDITED.log}: {self.ops} ops for {self.differing} different rows")
        for table, (before, after) in self.snapshots.items():
            if (before != after) != (table in (EDITED.table, EDITED.log)):
                problems.append(f"{table}: its Iceberg snapshot was {before} before the edit, then {after}")
        return problems

    def lines(self) -> dict[str, str]:
        """The printed lines, by label."""
        snapshot_seconds, steady_seconds = self.snapshot_seconds or 1.0, self.steady_seconds or 1.0
        p50, p95 = (percentile(self.latencies, percent) for percent in (50, 95))
        unchanged_tables = [name for name, (before, after) in self.snapshots.items() if before == after]
        problems = self.problems()
        result = f"[red]{len(problems)} differences[/]" if problems else "[green]equal[/]"
        latency = f"p50 {p50:.1f} s, p95 {p95:.1f} s, of {len(self.latencies)} flights"
        return {
            "snapshots": f"{self.snapshot_rows:,} rows in {snapshot_seconds:.1f} s, "
            f"{self.snapshot_rows / snapshot_seconds:,.0f} rows/s, "
            f"while {self.snapshot_changes:,} row changes were committed",
            "steady state": f"{self.steady_changes / steady_seconds:,.0f} row changes/s committed, "
            f"{self.steady_events / steady_seconds:,.0f} events/s committed to the lake, for {steady_seconds:.0f} s",
            "commit → bucket row": latency,
            f"{EDITED.name}, changed": f"{self.ops:,} ops for {self.differing:,} different rows, "
            f"{self.evaluated:,} evaluated",
            "Iceberg snapshots": "\n".join(
                f"{name} {before}" + (", unchanged" if name in unchanged_tables else f" → {after}")
                for name, (before, after) in self.snapshots.items()
            ),
            "lake and source": f"{result}, by {len(self.comparisons)} comparisons",
        }
