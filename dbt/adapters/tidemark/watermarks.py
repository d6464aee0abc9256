"""Watermarks: how far the models have come in each source, as published in `core.model_watermarks`. Pure.

Positions are half-open: a record at a position belongs to a later run.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

WATERMARK_COLUMNS = (
    "model, source, checkpoint_id, position, release_id, definition_hash, columns, view_tables, last_op, "
    "has_integer_keys"
)


@dataclass(frozen=True)
class Point:
    """How far a model has come in one source."""

    checkpoint_id: int
    position: int


Positions = dict[str, Point]


@dataclass(frozen=True)
class Watermark(Point):
    """A published point. The attributes from `definition_hash` on are of a definition, when it was published. last_op:
    of its log. has_integer_keys: whether each key that was written to its rows is an integer.
    """

    release_id: int
    definition_hash: str | None = None
    columns: Any = field(default_factory=list)
    view_tables: dict[str, str] = field(default_factory=dict)
    last_op: int | None = None
    has_integer_keys: bool | None = None


# By model and source.
Watermarks = dict[str, dict[str, Watermark]]


def add_watermarks(watermarks: Watermarks, rows: Iterable[Mapping[str, Any]]) -> Watermarks:
    """`watermarks` with those of newer releases: rows of `core.model_watermarks`, or of `core.releases`.

    Each release of a definition has the watermarks of all its sources: an older watermark is of a source that the
    definition no longer reads.
    """
    merged = {model: dict(by_source) for model, by_source in watermarks.items()}
    for row in sorted(rows, key=lambda row: row["release_id"]):
        by_source = merged.setdefault(row["model"], {})
        by_source[row["source"]] = Watermark(
            checkpoint_id=row["checkpoint_id"],
            position=row["position"],
            release_id=row["release_id"],
            definition_hash=row["definition_hash"],
            columns=json.loads(row["columns"] or "[]"),
            view_tables=json.loads(row["view_tables"] or "{}"),
            last_op=row["last_op"],
            has_integer_keys=row["has_integer_keys"],
        )
    return {model: _drop_unread_sources(by_source) for model, by_source in merged.items()}


def newest_release(watermarks: Watermarks) -> int:
    """The newest release whose watermarks these are; 0 before the first."""
    return max(
        (watermark.release_id for by_source in watermarks.values() for watermark in by_source.values()),
        default=0,
    )


def newest_checkpoint(positions: Mapping[str, Point]) -> int:
    """The newest checkpoint_id of some positions; 0 before the first."""
    return max((point.checkpoint_id for point in positions.values()), default=0)


def _drop_unread_sources(by_source: Mapping[str, Watermark]) -> dict[str, Watermark]:
    last_release = max(watermark.release_id for watermark in by_source.values())
    return {
        source: watermark
        for source, watermark in by_source.items()
        if watermark.definition_hash is None or watermark.release_id == last_release
    }
