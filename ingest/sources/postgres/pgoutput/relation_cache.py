"""Which version of a relation a row message is in: Relation messages hold from their place on."""

import numpy as np

from ingest.common.errors import Failure
from ingest.sources.postgres.pgoutput.messages import Registry, Relation, Version, version
from ingest.sources.postgres.pgoutput.payload_buffer import I64


class Relations:
    """All relations heard of so far. One piece of the stream at a time may add to them and ask.

    `forget` ends a piece: only the newest version of each relation is kept.
    """

    def __init__(self, source: str, registry: Registry) -> None:
        self._source = source
        self._registry = registry
        self._current: dict[int, Version] = {}
        self._oids: I64 = np.empty(0, np.int64)
        # Of the relations that changed in this piece: from which message on which version holds.
        self._history: dict[int, list[tuple[int, Version]]] = {}

    def add(self, message: int, relation: Relation) -> None:
        """Message number `message` of the piece says that from here on the relation is this."""
        before = self._current.get(relation.oid)
        after = version(relation, self._registry.describe(relation))
        if before == after:
            return
        history = self._history.setdefault(relation.oid, [(-1, before)] if before else [])
        history.append((message, after))
        self._current[relation.oid] = after
        if before is None:
            self._oids = np.array(sorted(self._current), np.int64)

    def describe_again(self) -> None:
        """Ask about all of them anew, between two pieces: no Relation message tells of a root's new name."""
        self._current = {
            oid: version(held.relation, self._registry.describe(held.relation, again=True))
            for oid, held in self._current.items()
        }

    def forget(self) -> None:
        """End the piece."""
        self._history.clear()

    def one(self, oid: int, message: int) -> Version:
        """The version that relation `oid` has at this message."""
        number, versions = self.resolve(np.array([oid]), np.array([message]))
        return versions[int(number[0])]

    def resolve(self, oids: I64, messages: I64) -> tuple[I64, list[Version]]:
        """For every (oid, message) the number of its version in the list that comes with it."""
        place = np.searchsorted(self._oids, oids)
        known = self._oids.take(place, mode="clip") == oids if self._oids.size else place < 0
        if not known.all():
            raise self._unknown(int(oids[~known][0]))
        versions: list[Version] = []
        base = np.zeros(len(self._oids), np.int64)
        changed: list[tuple[int, list[tuple[int, Version]]]] = []
        for i in np.flatnonzero(np.bincount(place)):
            oid = int(self._oids[i])
            history = self._history.get(oid) or [(-1, self._current[oid])]
            base[i] = len(versions)
            versions += [held for _, held in history]
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
            f"a change of relation {oid} came before the relation was described",
            self._source,
            "Start the stream again",
        )
