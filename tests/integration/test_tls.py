"""TLS by the DSN alone: in front of the real server stands one that speaks nothing else.

The certificate in tls/ is for `localhost`, signed by itself, and good for a hundred years; its key guards nothing.
"""

import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from ingest.config import PostgresSource
from ingest.errors import Failure
from ingest.lake import Lake
from ingest.settings import JobSettings
from tests.conftest import Database
from tests.integration.replay import Jobs

FOLDER = Path(__file__).parent / "tls"
SSL_REQUEST, GSS_REQUEST = 80877103, 80877104


class TlsFront(threading.Thread):
    """Takes TLS connections on a port of its own, and hands what they say to the server's socket."""

    def __init__(self, host: str, port: str) -> None:
        super().__init__(daemon=True)
        self._host, self._port = host, port
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(FOLDER / "cert.pem", FOLDER / "key.pem")
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.versions: list[str | None] = []

    def run(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=[client], daemon=True).start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError), client:
            while (asked := struct.unpack(">II", client.recv(8, socket.MSG_WAITALL))[1]) == GSS_REQUEST:
                client.sendall(b"N")
            assert asked == SSL_REQUEST, "a connection without TLS"
            client.sendall(b"S")
            with self._context.wrap_socket(client, server_side=True) as secure, self._behind() as server:
                self.versions.append(secure.version())
                back = threading.Thread(target=_pump, args=[server, secure], daemon=True)
                back.start()
                _pump(secure, server)
                back.join()

    def _behind(self) -> socket.socket:
        if not self._host.startswith("/"):
            return socket.create_connection((self._host, int(self._port)))
        server = socket.socket(socket.AF_UNIX)
        server.connect(f"{self._host}/.s.PGSQL.{self._port}")
        return server


def _pump(source: socket.socket, to: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            to.sendall(data)
    with suppress(OSError):
        to.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def front(database: Database) -> Iterator[TlsFront]:
    given = conninfo_to_dict(database.dsn)
    found = TlsFront(str(given["host"]), str(given.get("port") or 5432))
    found.start()
    yield found
    found.close()


def test_all_connections_are_by_tls_if_the_dsn_says_so(
    lake: Lake,
    new_source: Callable[..., PostgresSource],
    settings: JobSettings,
    database: Database,
    front: TlsFront,
) -> None:
    database.execute("create table a (id int primary key); insert into a values (1)")
    user = conninfo_to_dict(database.dsn).get("user")
    dsn = f"postgresql://{user}@localhost:{front.port}/{database.name}?sslmode=verify-full"
    with pytest.raises(Failure, match=r"can't connect to Postgres .*Check the DSN's ssl settings"):
        Jobs(lake, new_source(dsn=f"{dsn}&sslrootcert={FOLDER / 'key.pem'}"), settings).open()
    jobs = Jobs(lake, new_source(dsn=f"{dsn}&sslrootcert={FOLDER / 'cert.pem'}"), settings)
    jobs.open()
    database.execute("insert into a values (2)")
    jobs.settle()
    jobs.assert_equal("public.a")
    assert len(front.versions) > 3
    assert all(str(version).startswith("TLSv1") for version in front.versions)
    jobs.close()
