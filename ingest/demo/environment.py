"""The demo's environment: a Postgres, a MongoDB, a copy of examples/flights, and a lake that is emptied first.

A lake is emptied only if a demo created it, and if it contains only the demo's sources.
"""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from ingest.common.errors import UsageError
from ingest.demo import data, weather
from ingest.devservers.embedded_servers import MongoServer, PostgresServer
from ingest.project.dbt_package import COPY, ROOT, install_package

TARGET = "local"
_MARKER = ".made-by-tidemark-demo"
# The demo's dbt project.
EXAMPLE = ROOT / "examples" / "flights"
# Every demo creates the databases again, so they need not survive a crash.
_SETTINGS = {"fsync": "off", "full_page_writes": "off"}
# The demo is too short for the JVM's optimizing compiler to pay off.
_JAVA_OPTIONS = "-XX:TieredStopAtLevel=1"


@dataclass(frozen=True)
class Environment:
    """The servers, which are running, and the folders of the demo."""

    server: PostgresServer
    mongodb: MongoServer
    project: Path
    lake: Path


@contextlib.contextmanager
def prepare_environment(folder: Path = Path(".tidemark/demo")) -> Iterator[Environment]:
    """Prepares an environment with an empty lake. Stops the servers at the end; the lake stays. Raises UsageError."""
    folder = folder.absolute()
    lake = Path(os.environ.get("TIDEMARK_LAKE") or ".tidemark/lake").absolute()
    os.environ["TIDEMARK_LAKE"] = str(lake)
    os.environ.setdefault("TIDEMARK_JAVA_OPTIONS", _JAVA_OPTIONS)
    folder.mkdir(parents=True, exist_ok=True)
    with _lock_folder(folder):
        wipe_lake(lake)
        project = copy_example(folder / "project")
        with (
            PostgresServer(folder / "postgres", settings=_SETTINGS) as server,
            MongoServer(folder / "mongodb") as mongodb,
        ):
            yield Environment(server, mongodb, project, lake)


@contextlib.contextmanager
def _lock_folder(folder: Path) -> Iterator[None]:
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            fix = "Wait for it, or stop it"
            raise UsageError("another demo is running", str(folder), fix) from None
        yield


def wipe_lake(lake: Path) -> None:
    """Empties the lake of the last demo. Raises UsageError for any other lake."""
    if lake.exists() and any(lake.iterdir()):
        other_sources = sorted(read_sources(lake) - {data.SOURCE, weather.SOURCE})
        if other_sources or not (lake / _MARKER).exists():
            problem = f"the lake holds {', '.join(other_sources)}" if other_sources else "the lake is not a demo's"
            fix = "Use another lake for the demo: TIDEMARK_LAKE=.tidemark/demo-lake tidemark demo"
            raise UsageError(problem, str(lake), fix)
        shutil.rmtree(lake)
    lake.mkdir(parents=True, exist_ok=True)
    (lake / _MARKER).touch()


def read_sources(lake: Path) -> set[str]:
    """The sources in a local lake, read from its files, because Spark is not running yet."""
    files = (lake / "raw" / "stream_positions").glob("**/*.parquet")
    return {name for file in files for name in pq.read_table(file, columns=["source"])[0].to_pylist()}


def copy_example(project: Path) -> Path:
    """Copies the example, with the dbt package, to a folder where a definition can be edited; returns the folder."""
    shutil.rmtree(project, ignore_errors=True)
    shutil.copytree(EXAMPLE, project, ignore=shutil.ignore_patterns("dbt_packages", "logs", "target"))
    install_package(project)
    (project / "packages.yml").write_text(f"packages:\n  - local: {COPY}\n")
    return project
