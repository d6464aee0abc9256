"""Where the demo plays: a Postgres, a MongoDB, a dbt project of its own, and a lake that is wiped first.

Only a lake that a demo made is wiped, and only while it holds nothing but the demo's sources.
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

TARGET = "local"
_MARK = ".made-by-tidemark-demo"
_PARTS = ("dbt_project.yml", "profiles", "models/raw", "models/core", "macros", "tests/data_tests")
# The demo's own views and definitions, in place of those that a user writes.
MODELS = Path(__file__).parent / "models"
# It is made anew by every demo, so nothing is lost with the machine.
_SETTINGS = {"fsync": "off", "full_page_writes": "off"}
# It is over before the JVM's optimizing compiler has given back the time that it takes.
_JAVA_OPTIONS = "-XX:TieredStopAtLevel=1"


@dataclass(frozen=True)
class Stage:
    """The demo's places; the servers are running."""

    server: PostgresServer
    mongodb: MongoServer
    project: Path
    lake: Path


@contextlib.contextmanager
def stage(folder: Path = Path(".tidemark/demo")) -> Iterator[Stage]:
    """A clean stage; the servers are stopped at the end, the lake stays. Raises UsageError."""
    folder = folder.absolute()
    lake = Path(os.environ.get("TIDEMARK_LAKE") or ".tidemark/lake").absolute()
    os.environ["TIDEMARK_LAKE"] = str(lake)
    os.environ.setdefault("TIDEMARK_JAVA_OPTIONS", _JAVA_OPTIONS)
    folder.mkdir(parents=True, exist_ok=True)
    with _alone(folder):
        wipe(lake)
        project = _copy_project(folder / "project")
        with (
            PostgresServer(folder / "postgres", settings=_SETTINGS) as server,
            MongoServer(folder / "mongodb") as mongodb,
        ):
            yield Stage(server, mongodb, project, lake)


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            fix = "Wait for it, or end it"
            raise UsageError("another demo is running", str(folder), fix) from None
        yield


def wipe(lake: Path) -> None:
    """Empty the lake of the last demo. Raises UsageError for any other lake."""
    if lake.exists() and any(lake.iterdir()):
        others = sorted(sources(lake) - {data.SOURCE, weather.SOURCE})
        if others or not (lake / _MARK).exists():
            what = f"the lake holds {', '.join(others)}" if others else "the lake is not a demo's"
            fix = "Give the demo one of its own: TIDEMARK_LAKE=.tidemark/demo-lake tidemark demo"
            raise UsageError(what, str(lake), fix)
        shutil.rmtree(lake)
    lake.mkdir(parents=True, exist_ok=True)
    (lake / _MARK).touch()


def sources(lake: Path) -> set[str]:
    """The sources that a local lake holds, read from its files: no Spark is up yet."""
    files = (lake / "raw" / "stream_positions").glob("**/*.parquet")
    return {name for file in files for name in pq.read_table(file, columns=["source"])[0].to_pylist()}


def _copy_project(copy: Path) -> Path:
    """Copies the dbt project in the current folder, with the demo's models in place of its views and definitions."""
    parts = [Path(part) for part in _PARTS]
    for part in parts:
        if not part.exists():
            raise UsageError("there is no dbt project of Tidemark here", str(part), "Start in the project's folder")
    shutil.rmtree(copy, ignore_errors=True)
    for part in parts:
        if part.is_dir():
            shutil.copytree(part, copy / part)
        else:
            copy.mkdir(parents=True, exist_ok=True)
            shutil.copy(part, copy / part)
    shutil.copytree(MODELS, copy / "models", dirs_exist_ok=True)
    return copy
