"""A TCP proxy in front of the Postgres server, with faults of the connection."""

import socket
import threading
from contextlib import suppress
from typing import TypeAlias

from psycopg.conninfo import conninfo_to_dict

from tests.conftest import Database

Pair: TypeAlias = tuple[socket.socket, socket.socket]


class TcpProxy(threading.Thread):
    """Accepts connections on its own port and forwards them to the server of `database`."""

    def __init__(self, database: Database) -> None:
        super().__init__(daemon=True)
        options = conninfo_to_dict(database.dsn)
        self._host, self._port = str(options["host"]), str(options.get("port") or 5432)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._pairs: list[Pair] = []
        self._orphaned: list[socket.socket] = []

    def run(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=[client], daemon=True).start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for server in self._orphaned:
            server.close()

    def cut(self) -> None:
        """Cuts all clients' connections without notice to the server."""
        pairs, self._pairs = self._pairs, []
        for client, server in pairs:
            self._orphaned.append(server)
            with suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)

    def accept_client(self, client: socket.socket) -> socket.socket:
        """The handshake with a client before the server is involved; returns the socket for the further connection."""
        return client

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError), client, self.accept_client(client) as accepted:
            server = self._connect_server()
            self._pairs.append((accepted, server))
            reverse = threading.Thread(target=self._pump, args=[server, accepted], daemon=True)
            reverse.start()
            self._pump(accepted, server)
            if server not in self._orphaned:
                reverse.join()
                server.close()

    def _connect_server(self) -> socket.socket:
        if not self._host.startswith("/"):
            return socket.create_connection((self._host, int(self._port)))
        server = socket.socket(socket.AF_UNIX)
        server.connect(f"{self._host}/.s.PGSQL.{self._port}")
        return server

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)
        if target not in self._orphaned:
            with suppress(OSError):
                target.shutdown(socket.SHUT_RDWR)
