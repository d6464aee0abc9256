"""The environment of the benchmarks: servers, started on first use, and a lake for each contestant."""

import os
import shutil
import socket
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ingest.devservers.embedded_servers import SUPERUSER, MongoServer, PostgresServer
from ingest.lake import Lake, spark_session

HOST = "127.0.0.1"
# The same for all contestants: nothing waits for the disk, and no background work starts during a run.
POSTGRES_SETTINGS: Mapping[str, str] = {
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "autovacuum": "off",
    "shared_buffers": "1GB",
    "max_wal_size": "20GB",
    "checkpoint_timeout": "1h",
}


@dataclass
class Environment:
    """scale: factor for all sizes; 1 gives those of the README. runs: number of measured runs of each side."""

    folder: Path
    scale: float
    runs: int
    stack: ExitStack
    _postgres: PostgresServer | None = None
    _mongodb: MongoServer | None = None
    _numbers: Iterator[int] = field(default_factory=lambda: iter(range(10_000)))

    def sized(self, rows: int) -> int:
        """`rows` at the requested scale."""
        return max(1, int(rows * self.scale))

    @property
    def postgres(self) -> PostgresServer:
        """The running Postgres."""
        if self._postgres is None:
            address = {"listen_addresses": HOST, "port": str(_free_port())}
            server = PostgresServer(self.folder / "postgres", settings={**POSTGRES_SETTINGS, **address})
            self.stack.callback(server.remove)
            self._postgres = self.stack.enter_context(server)
        return self._postgres

    @property
    def dsn(self) -> str:
        """The DSN of the Postgres, over TCP: some contestants support nothing else."""
        return f"host={HOST} port={self.postgres.settings['port']} user={SUPERUSER} dbname=postgres"

    @property
    def mongodb(self) -> MongoServer:
        """The running MongoDB."""
        if self._mongodb is None:
            server = MongoServer(self.folder / "mongodb")
            self._mongodb = self.stack.enter_context(server)
        return self._mongodb

    def new_folder(self, name: str) -> str:
        """A new, empty folder."""
        folder = self.folder / f"{next(self._numbers)}-{name}"
        folder.mkdir(parents=True)
        return str(folder)


@contextmanager
def create_environment(folder: Path, scale: float, runs: int) -> Iterator[Environment]:
    """Creates an empty environment, and removes it at the end."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        with ExitStack() as stack:
            yield Environment(folder, scale, runs, stack)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        return int(listener.getsockname()[1])


def open_lake(folder: str) -> Lake:
    """Opens the lake in `folder` with a Spark session of this process."""
    os.environ["TIDEMARK_LAKE"] = folder
    return Lake(spark_session.open_session("local", log=Path(folder) / "spark.log"))
