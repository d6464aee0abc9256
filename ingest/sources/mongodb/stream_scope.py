"""What a source's stream is of: its level, and the collections that it selects.

`slot` of a stored position names it. With another one the position counts for another incarnation (positions.py):
events of another level are counted otherwise, and what a stream didn't select it has passed over. So processes that
were given different files never go by one another's positions.
"""

import json
from collections.abc import Collection
from dataclasses import dataclass

from typing_extensions import Self

from ingest.common.errors import Failure
from ingest.config.sources_file import MongoSource, is_selected
from ingest.lake import Lake
from ingest.lake.source_tables import ENDED
from ingest.positions.position import Position, current_epochs
from ingest.sources.mongodb import mongodb_server

WRITER = 1


@dataclass(frozen=True)
class Scope:
    """level: `cluster`, or a database's name. patterns: of the collections; None: of a lake that doesn't say."""

    level: str
    patterns: Collection[str] | None

    @classmethod
    def of(cls, slot: str) -> Self:
        """The one that `slot` names."""
        level, _, patterns = slot.partition(" ")
        return cls(level, json.loads(patterns) if patterns else None)

    @property
    def slot(self) -> str:
        """Its name."""
        return self.level if self.patterns is None else f"{self.level} {json.dumps(sorted(set(self.patterns)))}"

    def selects(self, collection: str) -> bool:
        """Whether the stream selects `database.collection`."""
        return self.patterns is None or is_selected(collection, self.patterns)


def stored(lake: Lake, source: MongoSource) -> Position | None:
    """Where the newest incarnation is."""
    return current_epochs(lake.positions(source.name)).get((source.name, WRITER))


def given(lake: Lake, source: MongoSource) -> Scope:
    """The scope that this process gives the source, at the level that its stream has or will have first."""
    found = stored(lake, source)
    return Scope(mongodb_server.CLUSTER if found is None else Scope.of(found.slot).level, source.collections)


def confirm(lake: Lake, source: MongoSource, scope: Scope) -> None:
    """Raises Failure if the stream is of another scope by now."""
    found = stored(lake, source)
    if found is not None and found.slot != scope.slot:
        raise Failure(
            f"another process streams {_said(Scope.of(found.slot))}, this one {_said(scope)}",
            f"source {source.name}",
            "Start all processes of the source with the same sources.yml, the stream first",
        )


def select_anew(lake: Lake, source: MongoSource, before: Scope, after: Scope, position: int) -> None:
    """Queues the registered collections that `after` selects and `before` didn't; those that it no longer does end at
    `position`.
    """
    names = [table.table_name for table in lake.tables.read(source.name).values()]
    added = [name for name in names if after.selects(name) and not before.selects(name)]
    if added:
        lake.tables.queue_snapshots(source.name, "the stream selects it anew", added)
    while left := [
        table.with_changes(state=ENDED, ended_lsn=position)
        for table in lake.tables.read(source.name).values()
        if table.state != ENDED and not after.selects(table.table_name)
    ]:
        lake.tables.upsert(source.name, left)


def _said(scope: Scope) -> str:
    return ", ".join(scope.patterns or ["what an older version did"])
