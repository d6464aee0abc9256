"""A TCP port in front of the server's socket, and what goes wrong between the two."""

import socket
import threading
from contextlib import suppress
from typing import TypeAlias

from psycopg.conninfo import conninfo_to_dict

from tests.conftest import Database

Pair: TypeAlias = tuple[socket.socket, socket.socket]


class TcpProxy(threading.Thread):
    """Takes connections on a port of its own, and hands what they say to the server of `database`."""

    def __init__(self, database: Database) -> None:
        super().__init__(daemon=True)
        given = conninfo_to_dict(database.dsn)
        self._host, self._port = str(given["host"]), str(given.get("port") or 5432)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._open: list[Pair] = []
        self._forgotten: list[socket.socket] = []

    def run(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=[client], daemon=True).start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for server in self._forgotten:
            server.close()

    def cut(self) -> None:
        """All clients lose their connections, and the server is not told."""
        lost, self._open = self._open, []
        for client, server in lost:
            self._forgotten.append(server)
            with suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)

    def greet(self, client: socket.socket) -> socket.socket:
        """What is said before a client speaks to the server, and how it is spoken to from then on."""
        return client

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError), client, self.greet(client) as near:
            server = self._behind()
            self._open.append((near, server))
            back = threading.Thread(target=self._pump, args=[server, near], daemon=True)
            back.start()
            self._pump(near, server)
            if server not in self._forgotten:
                back.join()
                server.close()

    def _behind(self) -> socket.socket:
        if not self._host.startswith("/"):
            return socket.create_connection((self._host, int(self._port)))
        server = socket.socket(socket.AF_UNIX)
        server.connect(f"{self._host}/.s.PGSQL.{self._port}")
        return server

    def _pump(self, source: socket.socket, to: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                to.sendall(data)
        if to not in self._forgotten:
            with suppress(OSError):
                to.shutdown(socket.SHUT_RDWR)
