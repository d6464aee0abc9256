"""A lease on claimed chunks, renewed by a thread until the chunks are done or released."""

import logging
import threading
from collections.abc import Mapping, Sequence
from types import TracebackType

from typing_extensions import Self

from ingest.common.environment_errors import unavailable
from ingest.common.errors import one_line
from ingest.common.log_repeats import Repeats
from ingest.lake.snapshot_chunks import Chunk, ChunkStats, SnapshotChunks

_log = logging.getLogger(__name__)


class Lease:
    """A context manager: on exit, claimed chunks that were not marked done are released."""

    def __init__(self, table: SnapshotChunks, chunks: Sequence[Chunk], seconds: float) -> None:
        self._table = table
        self._chunks = list(chunks)
        self._source = chunks[0].source
        self._seconds = seconds
        self._lock = threading.Lock()
        self._repeats = Repeats(_log)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="lease", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()
        # After an error the lease expires by itself, because the lake may be unreachable.
        if error is None and self._chunks:
            self._table.release(self._chunks)

    def mark_done(self, stats: Mapping[tuple[str, int], ChunkStats]) -> list[Chunk]:
        """Marks the chunks with an entry in `stats`, by (snapshot_id, chunk), as done; returns those marked.

        A chunk that another process has claimed in the meantime is not marked.
        """
        with self._lock:
            finished = [c for c in self._chunks if (c.snapshot_id, c.chunk) in stats]
            self._chunks = [c for c in self._chunks if (c.snapshot_id, c.chunk) not in stats]
            if not finished:
                return []
            return self._table.mark_done(finished, [stats[chunk.snapshot_id, chunk.chunk] for chunk in finished])

    def _renew(self) -> None:
        while not self._ended.wait(self._seconds / 3):
            with self._lock:
                try:
                    if self._chunks:
                        self._chunks = self._table.renew(self._chunks, self._seconds)
                except Exception as error:  # noqa: BLE001  # the lease expires, and another process may claim
                    known_error = unavailable(error, "the lake")
                    why = known_error.what if known_error else one_line(str(error))[:300]
                    self._repeats.occurred(f"source {self._source}: a lease could not be renewed ({why})", key="lease")
