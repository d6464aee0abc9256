"""The scope of a source's stream: its level, and the collections that it selects.

The `slot` of a stored position names the scope; another scope is another epoch of the writer. Ordinals depend on the
level, and a stream skips what it does not select. So processes with different sources.yml never use each other's
positions.
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
class StreamScope:
    """level: `$cluster`, or a database's name. patterns: of the collections; None: stored by an older version."""

    level: str
    patterns: Collection[str] | None

    @classmethod
    def parse(cls, slot: str) -> Self:
        """The scope that `slot` names."""
        level, _, patterns = slot.partition(" ")
        return cls(level, json.loads(patterns) if patterns else None)

    @property
    def slot(self) -> str:
        """The scope's name, for the column `slot` of raw.stream_positions."""
        return self.level if self.patterns is None else f"{self.level} {json.dumps(sorted(set(self.patterns)))}"

    def selects(self, collection: str) -> bool:
        """Whether the stream selects `database.collection`."""
        return self.patterns is None or is_selected(collection, self.patterns)


def stored_position(lake: Lake, source: MongoSource) -> Position | None:
    """The position of the current epoch."""
    return current_epochs(lake.positions.read(source.name)).get((source.name, WRITER))


def configured_scope(lake: Lake, source: MongoSource) -> StreamScope:
    """The scope by this process's configuration, at the stream's stored level, or `$cluster` before the first start."""
    stored = stored_position(lake, source)
    return StreamScope(
        mongodb_server.CLUSTER if stored is None else StreamScope.parse(stored.slot).level, source.collections
    )


def check_scope(lake: Lake, source: MongoSource, scope: StreamScope) -> None:
    """Raises Failure if the stream has another scope by now."""
    stored = stored_position(lake, source)
    if stored is not None and stored.slot != scope.slot:
        raise Failure(
            f"another process streams {_said(StreamScope.parse(stored.slot))}, this one {_said(scope)}",
            f"source {source.name}",
            "Start all processes of the source with the same sources.yml, the stream first",
        )


def change_selection(lake: Lake, source: MongoSource, before: StreamScope, after: StreamScope, position: int) -> None:
    """Queue the registered collections that only `after` selects; end those that it does not select at `position`."""
    names = [table.table_name for table in lake.tables.read(source.name).values()]
    added = [name for name in names if after.selects(name) and not before.selects(name)]
    if added:
        lake.tables.queue_snapshots(source.name, "the stream selects it again", added)
    while left := [
        table.with_changes(state=ENDED, ended_lsn=position)
        for table in lake.tables.read(source.name).values()
        if table.state != ENDED and not after.selects(table.table_name)
    ]:
        lake.tables.upsert(source.name, left)


def _said(scope: StreamScope) -> str:
    return ", ".join(scope.patterns or ["the selection of an older version"])
