"""How a writer that `sources.yml` no longer asks for leaves: it gives its tables away, lands what was theirs, and
doesn't count any more.
"""

import logging
import time
from collections.abc import Callable
from functools import partial

import psycopg

from ingest.common.errors import Failure
from ingest.config.job_settings import JobSettings
from ingest.config.sources_file import PostgresSource
from ingest.lake import Lake
from ingest.positions.position import Position
from ingest.sources.postgres.catalog import catalog_tables, publications
from ingest.sources.postgres.postgres_connection import TRANSIENT_ERRORS, CannotConnect, Connection, connect
from ingest.sources.postgres.slots import replication_slots
from ingest.sources.postgres.slots.replication_slots import Cancelled
from ingest.sources.postgres.writers import table_assignment
from ingest.sources.postgres.writers.postgres_writers import clear_up

_log = logging.getLogger(__name__)

# Between looks whether it may, at first and at the longest: each look has whoever writes into a busy table wait for a
# moment.
_LOOK_SECONDS, _LONGEST_LOOK_SECONDS = 2.0, 60.0


class Departure:
    """For the thread that runs the writer. wait: waits so many seconds, true if the writer is to end: then it leaves
    another time.
    """

    def __init__(
        self,
        lake: Lake,
        source: PostgresSource,
        settings: JobSettings,
        position: Position,
        wait: Callable[[float], bool] = table_assignment.sleep,
    ) -> None:
        self._lake = lake
        self._source = source
        self._position = position
        self._wait = wait
        self._connect = partial(
            connect, source.dsn.get_secret_value(), connect_timeout_seconds=settings.connect_timeout_seconds
        )
        self._publication = {position.writer: source.publication_of(position.writer)}
        self._target: int | None = None
        self._owners: dict[int, int] = {}
        self._next = 0.0
        self._pause = _LOOK_SECONDS
        self._has_said = False

    def target(self) -> int | None:
        """The position that it has to pass; None for as long as it has a table."""
        if self._target is None and time.monotonic() >= self._next:
            self._next = time.monotonic() + self._pause
            self._pause = min(2 * self._pause, _LONGEST_LOOK_SECONDS)
            try:
                with self._connect() as connection:
                    self._target = self._look(connection)
            except (CannotConnect, psycopg.OperationalError, *TRANSIENT_ERRORS) as error:
                _log.warning("it can't be seen whether writer %d may leave (%s)", self._position.writer, error)
            except Cancelled:
                return None
        return self._target

    def leave(self) -> None:
        """It has passed the target, and doesn't count any more; its slot is dropped, and its publication.

        Tried again while the source can't be reached. Raises Failure if it may have had a table again meanwhile, whose
        changes it has yet to land.
        """
        pause = _LOOK_SECONDS
        while True:
            try:
                with self._connect() as connection:
                    self._leave(connection)
                return
            except (CannotConnect, psycopg.OperationalError, *TRANSIENT_ERRORS) as error:
                _log.warning("writer %d can't leave at the moment (%s)", self._position.writer, error)
            except Cancelled:
                return
            if self._wait(pause):
                return
            pause = min(2 * pause, _LONGEST_LOOK_SECONDS)

    def _leave(self, connection: Connection) -> None:
        source, writer = self._source, self._position.writer
        replication_slots.wait_until_free(connection, self._position.slot, source.name)
        with (
            table_assignment.locked(connection, source, "writers", self._wait),
            table_assignment.locked(connection, source, "tables", self._wait),
        ):
            published = self._published(connection)
            was_moved = any(self._owners.get(oid, now) != now for oid, now in published.items())
            # Its look knows nothing of one that came since, and has been moved on.
            was_moved |= table_assignment.moved_since(self._lake, source, self._target or 0)
            if was_moved or publications.read(connection, self._publication):
                raise Failure(
                    f"tables were moved while writer {writer} left",
                    f"source {source.name}",
                    "Have one sources.yml for all processes, and start the stream again",
                )
            self._lake.set_active_writers(source.name, self._lake.active_writers(source.name) - {writer})
            clear_up(connection, self._lake, source, self._position)
        _log.info("source %s: writer %d has left", source.name, writer)

    def _look(self, connection: Connection) -> int | None:
        if publications.read(connection, self._publication):
            self._say_if_not_ours(connection)
            table_assignment.share_out(connection, self._lake, self._source, self._wait)
        with table_assignment.locked(connection, self._source, "tables", self._wait):
            self._owners = self._published(connection)
            # What another one that leaves is still to give away would look as if somebody else moved tables.
            if publications.read(connection, self._publication) or self._gives_away(connection):
                return None
            return catalog_tables.emit_marker(connection)

    def _gives_away(self, connection: Connection) -> bool:
        """Whether a publication of ours, of a writer that leaves, has a table."""
        leaving = {writer for writer in self._lake.active_writers(self._source.name) if writer > self._source.writers}
        names = {writer: self._source.publication_of(writer) for writer in leaving}
        members = publications.members(connection, publications.ours(connection, names))
        return any(member.owned for member in members)

    def _say_if_not_ours(self, connection: Connection) -> None:
        if self._has_said or publications.ours(connection, self._publication):
            return
        self._has_said = True
        _log.warning(
            "source %s: writer %d leaves when a person has put the tables of publication %s into another writer's: "
            "Tidemark did not make it",
            self._source.name,
            self._position.writer,
            self._source.publication_of(self._position.writer),
        )

    def _published(self, connection: Connection) -> dict[int, int]:
        """The published_id of every table of the source: another one when it was moved, be it there and back."""
        writers = self._lake.active_writers(self._source.name)
        names = {writer: self._source.publication_of(writer) for writer in writers}
        return {oid: one.published_id for oid, one in publications.read(connection, names).items()}
