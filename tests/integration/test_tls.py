"""TLS by the DSN alone: a proxy that accepts only TLS connections is in front of the real server.

The certificate in tls/ is self-signed for `localhost` and valid for a hundred years; its key protects no secret.
"""

import socket
import ssl
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from ingest.common.errors import Failure
from ingest.config.job_settings import JobSettings
from ingest.config.sources_file import PostgresSource
from ingest.lake import Lake
from tests.conftest import Database
from tests.harness.postgres_jobs import PostgresJobs
from tests.harness.tcp_proxy import TcpProxy

FOLDER = Path(__file__).parent / "tls"
SSL_REQUEST, GSS_REQUEST = 80877103, 80877104


class TlsProxy(TcpProxy):
    """Accepts only TLS connections."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(FOLDER / "cert.pem", FOLDER / "key.pem")
        self.versions: list[str | None] = []

    def accept_client(self, client: socket.socket) -> socket.socket:
        while (request := struct.unpack(">II", client.recv(8, socket.MSG_WAITALL))[1]) == GSS_REQUEST:
            client.sendall(b"N")
        assert request == SSL_REQUEST, "a connection without TLS"
        client.sendall(b"S")
        secure = self._context.wrap_socket(client, server_side=True)
        self.versions.append(secure.version())
        return secure


@pytest.fixture
def proxy(database: Database) -> Iterator[TlsProxy]:
    actual = TlsProxy(database)
    actual.start()
    yield actual
    actual.close()


def test_all_connections_use_tls_if_the_dsn_requires_it(
    lake: Lake,
    new_source: Callable[..., PostgresSource],
    settings: JobSettings,
    database: Database,
    proxy: TlsProxy,
) -> None:
    database.execute("create table a (id int primary key); insert into a values (1)")
    user = conninfo_to_dict(database.dsn).get("user")
    dsn = f"postgresql://{user}@localhost:{proxy.port}/{database.name}?sslmode=verify-full"
    with pytest.raises(Failure, match=r"can't connect to Postgres .*Check the DSN's ssl settings"):
        PostgresJobs(lake, new_source(dsn=f"{dsn}&sslrootcert={FOLDER / 'key.pem'}"), settings).open()
    jobs = PostgresJobs(lake, new_source(dsn=f"{dsn}&sslrootcert={FOLDER / 'cert.pem'}"), settings)
    jobs.open()
    database.execute("insert into a values (2)")
    jobs.settle()
    jobs.assert_equal("public.a")
    assert len(proxy.versions) > 3
    assert all(str(version).startswith("TLSv1") for version in proxy.versions)
    jobs.close()
