"""What the demo came to: its figures as lines of a table, and what is wrong with them."""

from dataclasses import dataclass, field

from ingest.demo.compare import Compared
from ingest.demo.definitions import EDITED
from ingest.demo.watch import percentile


@dataclass
class Figures:
    """Filled act by act. snapshots: of each bucket's tables the Iceberg one before and after."""

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
    compared: list[Compared] = field(default_factory=list)

    def problems(self) -> list[str]:
        """What is not as it should be; empty if all is equal."""
        found = [f"{one.name}: {one.problem}" for one in self.compared if one.problem]
        if self.ops != self.differing:
            found.append(f"{EDITED.log}: {self.ops} ops for {self.differing} rows that differ")
        for table, (before, after) in self.snapshots.items():
            if (before != after) != (table in (EDITED.table, EDITED.log)):
                found.append(f"{table}: its Iceberg snapshot was {before} before the edit, then {after}")
        return found

    def lines(self) -> dict[str, str]:
        """By label, for people."""
        snapshotting, steady = self.snapshot_seconds or 1.0, self.steady_seconds or 1.0
        p50, p95 = (percentile(self.latencies, percent) for percent in (50, 95))
        untouched = [name for name, (before, after) in self.snapshots.items() if before == after]
        problems = self.problems()
        result = f"[red]{len(problems)} differences[/]" if problems else "[green]equal[/]"
        latency = f"p50 {p50:.1f} s, p95 {p95:.1f} s, of {len(self.latencies)} flights"
        return {
            "snapshots": f"{self.snapshot_rows:,} rows in {snapshotting:.1f} s, "
            f"{self.snapshot_rows / snapshotting:,.0f} rows/s, "
            f"while {self.snapshot_changes:,} row changes were committed",
            "steady state": f"{self.steady_changes / steady:,.0f} row changes/s committed, "
            f"{self.steady_events / steady:,.0f} events/s landed, for {steady:.0f} s",
            "commit → bucket row": latency,
            f"{EDITED.name}, changed": f"{self.ops:,} ops for {self.differing:,} rows that differ, "
            f"{self.evaluated:,} evaluated",
            "Iceberg snapshots": "\n".join(
                f"{name} {before}" + (", as before" if name in untouched else f" → {after}")
                for name, (before, after) in self.snapshots.items()
            ),
            "lake and source": f"{result}, by {len(self.compared)} comparisons",
        }
