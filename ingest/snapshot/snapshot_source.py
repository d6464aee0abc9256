"""What a source gives a snapshotter: its catalogue looked at, queued tables planned, claimed chunks read.

`postgres_snapshot_source` and `mongodb_snapshot_source` implement it. The snapshotter calls them and knows no database.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from ingest.common.errors import Unavailable
from ingest.lake import Chunk, File, Folder, SourceTable

Bounds = tuple[int, str | None, str | None]


@dataclass(frozen=True)
class Plan:
    """How a queued table is to be read.

    Its shape, the stamp, and its chunks (partition, lower bound, upper bound).
    """

    table: SourceTable
    snapshot_lsn: int
    chunks: tuple[Bounds, ...]


@dataclass(frozen=True)
class Read:
    """How the reading of a claimed chunk went: its rows, in a file if there are any, and the stamp
    they were read under; else a problem.

    restart: the table is no longer the one that was begun. give_up: it can't be read, for long.
    """

    chunk: Chunk
    rows: int = 0
    read_lsn: int = 0
    file: File | None = None
    problem: str = ""
    restart: bool = False
    give_up: bool = False


class Unreachable(Unavailable):
    """A source can't be reached at the moment. It is tried again, but for the first time."""


class Busy(Unreachable):
    """A source can be reached, but its catalogue can't be read at the moment. It is tried again."""


class Source(Protocol):
    """What a source gives a snapshotter; see `postgres.snapshots.PostgresTables`.

    All but `cancel` are called by one thread, and may raise `Unreachable`.
    """

    def survey(self) -> None:
        """Bring raw.source_tables up to date with the source's catalogue."""

    def plan(self, queued: Sequence[SourceTable], *, patient: bool = True) -> list[Plan]:
        """How to read queued tables, all under one snapshot.

        Without those that can't be read now; patient: whether it may wait for whoever writes to the source.
        """

    def obstacle(self, table: SourceTable) -> str:
        """Why a table can't be read at present, as the last survey saw it; empty if it can."""

    def weight(self, table: SourceTable, chunk: Chunk) -> int:
        """About how many bytes a chunk has."""

    def at_once(self, table: SourceTable) -> bool:
        """Whether all chunks of a table have to be read under one snapshot."""

    def read(self, chunks: Sequence[tuple[SourceTable, Chunk]], folder: Folder) -> Iterable[Read]:
        """Read claimed chunks into files of `folder`."""

    def watermark(self) -> int:
        """A position past everything that was committed before the call."""

    def cancel(self) -> None:
        """From another thread: what waits in `plan` gives up."""

    def rest(self) -> None:
        """Nothing is to be read at the moment: let go of what is held at the source."""

    def close(self) -> None:
        """Let go of everything."""
