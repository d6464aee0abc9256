"""The relation cache: which version of a relation a row message has. A Relation message applies to later messages."""

import numpy as np

from ingest.common.errors import Failure
from ingest.sources.postgres.pgoutput.messages import Relation, RelationRegistry, RelationVersion, make_version
from ingest.sources.postgres.pgoutput.payload_buffer import I64


class RelationCache:
    """The relations received so far, with all versions of the current batch.

    `end_batch` drops all versions but the newest of each relation.
    """

    def __init__(self, source: str, registry: RelationRegistry) -> None:
        self._source = source
        self._registry = registry
        self._current: dict[int, RelationVersion] = {}
        self._oids: I64 = np.empty(0, np.int64)
        # The relations that changed in this batch: (first message, version) by oid.
        self._history: dict[int, list[tuple[int, RelationVersion]]] = {}

    def add(self, message: int, relation: Relation) -> None:
        """Add the Relation message with number `message` of the batch."""
        before = self._current.get(relation.oid)
        after = make_version(relation, self._registry.describe(relation))
        if before == after:
            return
        history = self._history.setdefault(relation.oid, [(-1, before)] if before else [])
        history.append((message, after))
        self._current[relation.oid] = after
        if before is None:
            self._oids = np.array(sorted(self._current), np.int64)

    def describe_again(self) -> None:
        """Ask the registry about all relations again, between two batches.

        The server sends no Relation message when the root of a partition is renamed.
        """
        self._current = {
            oid: make_version(version.relation, self._registry.describe(version.relation, again=True))
            for oid, version in self._current.items()
        }

    def end_batch(self) -> None:
        """Drop the batch's versions but the newest of each relation."""
        self._history.clear()

    def find_version(self, oid: int, message: int) -> RelationVersion:
        """The version that relation `oid` has at this message."""
        number, versions = self.resolve(np.array([oid]), np.array([message]))
        return versions[int(number[0])]

    def resolve(self, oids: I64, messages: I64) -> tuple[I64, list[RelationVersion]]:
        """For every (oid, message) the index of its version in the returned list."""
        place = np.searchsorted(self._oids, oids)
        is_known = self._oids.take(place, mode="clip") == oids if self._oids.size else place < 0
        if not is_known.all():
            raise self._unknown(int(oids[~is_known][0]))
        versions: list[RelationVersion] = []
        base = np.zeros(len(self._oids), np.int64)
        changed: list[tuple[int, list[tuple[int, RelationVersion]]]] = []
        for i in np.flatnonzero(np.bincount(place)):
            oid = int(self._oids[i])
            history = self._history.get(oid) or [(-1, self._current[oid])]
            base[i] = len(versions)
            versions += [version for _, version in history]
            if len(history) > 1:
                changed.append((oid, history))
        number = base[place]
        for oid, history in changed:
            rows = np.flatnonzero(oids == oid)
            since = np.array([message for message, _ in history])
            number[rows] += np.searchsorted(since, messages[rows]) - 1
        return number, versions

    def _unknown(self, oid: int) -> Failure:
        return Failure(
            f"a change of relation {oid} was received before its Relation message",
            self._source,
            "Start the stream again",
        )
