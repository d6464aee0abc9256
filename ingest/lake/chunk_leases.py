"""A lease on claimed chunks, renewed by a thread of its own for as long as they are worked on."""

import logging
import threading
from collections.abc import Mapping, Sequence
from types import TracebackType

from typing_extensions import Self

from ingest.common.environment_errors import unavailable
from ingest.common.errors import one_line
from ingest.common.log_repeats import Repeats
from ingest.lake.chunk_table import Chunk, ChunkTable, Count

_log = logging.getLogger(__name__)


class Lease:
    """A context: chunks that are not named done when it ends are given back."""

    def __init__(self, table: ChunkTable, chunks: Sequence[Chunk], seconds: float) -> None:
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
        # After an error the lease runs out by itself: who knows whether the lake can be reached.
        if error is None and self._chunks:
            self._table.release(self._chunks)

    def finish(self, counts: Mapping[tuple[str, int], Count]) -> list[Chunk]:
        """Names those chunks done that have a count, by (snapshot_id, chunk); gives those that
        count.

        A chunk that somebody else has claimed meanwhile doesn't.
        """
        with self._lock:
            finished = [c for c in self._chunks if (c.snapshot_id, c.chunk) in counts]
            self._chunks = [c for c in self._chunks if (c.snapshot_id, c.chunk) not in counts]
            if not finished:
                return []
            return self._table.finish(finished, [counts[chunk.snapshot_id, chunk.chunk] for chunk in finished])

    def _renew(self) -> None:
        while not self._ended.wait(self._seconds / 3):
            with self._lock:
                try:
                    if self._chunks:
                        self._chunks = self._table.renew(self._chunks, self._seconds)
                except Exception as error:  # noqa: BLE001  # the lease runs out, and somebody else may try
                    found = unavailable(error, "the lake")
                    why = found.what if found else one_line(str(error))[:300]
                    self._repeats.occurred(f"source {self._source}: a lease could not be renewed ({why})", key="lease")
