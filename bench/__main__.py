"""`python -m bench`: runs the benchmarks, prints a table, writes bench/results.json."""

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path

from rich.console import Console

from bench import debezium, definitions, latency, memory, models, mongodb, snapshot, stream, writers
from bench.contest import ContestantFailed
from bench.place import Place, place
from bench.result import Result, table

BENCHMARKS: dict[str, Callable[[Place], Iterator[Result]]] = {
    "stream": stream.results,
    "snapshot": snapshot.results,
    "memory": memory.results,
    "models": models.results,
    "definitions": definitions.results,
    "latency": latency.results,
    "writers": writers.results,
    "mongodb": mongodb.results,
    "debezium": debezium.results,
}
RESULTS = Path("bench/results.json")


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(prog="make bench", description="Measures Tidemark beside others.")
    parser.add_argument("--only", default="", help=f"some of {', '.join(BENCHMARKS)}, with commas")
    parser.add_argument("--scale", type=float, default=1.0, help="of all sizes; 1 is what bench/README.md says")
    parser.add_argument("--runs", type=int, default=3, help="that count, of each side, after one that doesn't")
    parser.add_argument("--folder", type=Path, default=Path(".tidemark/bench"), help="for servers and lakes")
    given = parser.parse_args()
    chosen = [name for name in given.only.split(",") if name] or list(BENCHMARKS)
    if unknown := [name for name in chosen if name not in BENCHMARKS]:
        parser.error(f"no benchmark {', '.join(unknown)}: there are {', '.join(BENCHMARKS)}")
    found: list[Result] = []
    failed: list[str] = []
    console = Console()
    for name in chosen:
        began = time.monotonic()
        try:
            with place(given.folder.absolute(), given.scale, given.runs) as here:
                for result in BENCHMARKS[name](here):
                    found.append(result)
                    console.print(result.summary(), highlight=False)
        except (ContestantFailed, AssertionError) as error:
            failed.append(name)
            console.print(f"{name}: {error}", style="red", markup=False)
        console.print(f"{name}: {time.monotonic() - began:.0f} s", style="dim")
        write(found, given.scale)
    console.print(table(found))
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def write(found: list[Result], scale: float) -> None:
    """All that was found, beside what it was found on."""
    machine = {
        "cores": os.cpu_count(),
        "memory_mib": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20,
        "system": platform.platform(),
        "python": platform.python_version(),
    }
    made = {"at": datetime.now(timezone.utc).isoformat(timespec="seconds"), "scale": scale, "machine": machine}
    RESULTS.write_text(json.dumps({**made, "results": [one.as_json() for one in found]}, indent=2) + "\n")


if __name__ == "__main__":
    main()
