"""One Spark session for all tests of a process; a lake and a source for each test."""

import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from pymongo import MongoClient
from pyspark.sql import SparkSession

from ingest.config.job_settings import JobSettings
from ingest.config.sources_file import MongoSource, PostgresSource
from ingest.devservers.embedded_servers import MongoServer
from ingest.lake import Lake
from ingest.lake.spark_session import open_session
from tests.conftest import Database
from tests.harness.lakes import LakeFolder
from tests.harness.mongodb_jobs import Client, MongoJobs
from tests.harness.postgres_jobs import PostgresJobs

PROJECT = Path(__file__).parents[2]

# py4j leaves the sockets of its threads to the garbage collector.
_PY4J = (
    "ignore:Exception ignored in. <socket.socket:pytest.PytestUnraisableExceptionWarning",
    "ignore:unclosed <socket.socket:ResourceWarning",
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" in metafunc.fixturenames:
        first, _, last = str(metafunc.config.getoption("--seeds")).partition("-")
        metafunc.parametrize("seed", range(int(first), int(last or first) + 1))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for warning in _PY4J:
            item.add_marker(pytest.mark.filterwarnings(warning))


@pytest.fixture(scope="session")
def lake_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lake")


@pytest.fixture(scope="session")
def spark(lake_folder: Path) -> Iterator[SparkSession]:
    before = dict(os.environ)
    os.environ["TIDEMARK_LAKE"] = str(lake_folder)
    os.environ["TIDEMARK_CORES"] = "2"
    path = [str(PROJECT), *filter(None, [before.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(path)
    # The JVM's second compiler costs the tests more CPU than it saves: three tests of op logs took 83 s of a JVM's CPU
    # with it, 41 s without.
    os.environ.setdefault("TIDEMARK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")
    started = open_session("local", PROJECT / "profiles", lake_folder / "spark.log")
    yield started
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="session")
def lakes(spark: SparkSession, lake_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> LakeFolder:
    return LakeFolder(spark, lake_folder, tmp_path_factory.mktemp("saved"))


@pytest.fixture
def lake(lakes: LakeFolder) -> Lake:
    """A lake with empty raw tables."""
    return lakes.empty()


@pytest.fixture
def settings() -> JobSettings:
    """Short intervals, so that no test waits for long."""
    return JobSettings(
        commit_interval_seconds=0.05, idle_position_seconds=0.2, status_interval_seconds=0.5, catalog_poll_seconds=0.5
    )


@pytest.fixture
def new_source(database: Database) -> Callable[..., PostgresSource]:
    """Creates a source of the test's database; all tables of the schema `public` are replicated."""

    def make(**options: Any) -> PostgresSource:
        name = f"s{uuid.uuid4().hex[:12]}"
        return PostgresSource(
            name=name,
            dsn=SecretStr(options.pop("dsn", database.dsn)),
            **{"tables": ("public.*",), "slot": name, "publication": name, **options},
        )

    return make


@pytest.fixture
def source(new_source: Callable[..., PostgresSource]) -> PostgresSource:
    return new_source()


@pytest.fixture
def role(database: Database) -> Iterator[str]:
    """A role with the right to connect and no others; dropped with its objects and privileges in this database."""
    name = f"role_{uuid.uuid4().hex[:8]}"
    database.execute(f"create role {name} login")
    yield name
    database.execute(f"drop owned by {name}; drop role {name}")


@pytest.fixture
def jobs(lake: Lake, source: PostgresSource, settings: JobSettings) -> Iterator[PostgresJobs]:
    postgres_jobs = PostgresJobs(lake, source, settings)
    yield postgres_jobs
    postgres_jobs.close()


@pytest.fixture(scope="session")
def mongo_server() -> Iterator[str]:
    """The connection string of a replica set."""
    if uri := os.environ.get("TIDEMARK_TEST_MONGODB_URI"):
        yield uri
        return
    server = MongoServer(Path(tempfile.mkdtemp()) / "mongodb")
    try:
        server.start()
        yield server.uri
    finally:
        server.stop()
        shutil.rmtree(server.folder.parent)


@pytest.fixture
def mongo(mongo_server: str) -> Iterator[Client]:
    """A client for writes."""
    client: Client = MongoClient(mongo_server)
    with client:
        yield client


@pytest.fixture
def new_mongo_source(mongo_server: str, mongo: Client) -> Iterator[Callable[..., MongoSource]]:
    """Creates a source of a database with the source's name; all of its collections are replicated."""
    databases = []

    def make(**options: Any) -> MongoSource:
        name = f"m{uuid.uuid4().hex[:12]}"
        databases.append(name)
        uri = SecretStr(options.pop("uri", mongo_server))
        return MongoSource(name=name, uri=uri, **{"collections": (f"{name}.*",), **options})

    yield make
    for name in databases:
        mongo.drop_database(name)


@pytest.fixture
def mongo_source(new_mongo_source: Callable[..., MongoSource]) -> MongoSource:
    return new_mongo_source()


@pytest.fixture
def mongo_jobs(lake: Lake, mongo_source: MongoSource, settings: JobSettings) -> MongoJobs:
    return MongoJobs(lake, mongo_source, settings)
