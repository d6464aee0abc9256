"""Finds the replicated tables that are named on the command line."""

import difflib
from collections.abc import Sequence

from ingest.common.errors import UsageError
from ingest.config.sources_file import Settings, Source
from ingest.lake import Lake
from ingest.lake.source_tables import ENDED


def select_sources(settings: Settings, source: str | None) -> list[Source]:
    """The source with this name; None: all sources."""
    return list(settings.sources.values()) if source is None else [settings.source(source)]


def replicated_tables(lake: Lake, source: str) -> list[str]:
    """Names of the source's tables in the lake."""
    return sorted(table.table_name for table in lake.tables.read(source).values() if table.state != ENDED)


def locate_tables(lake: Lake, settings: Settings, names: Sequence[str], source: str | None) -> dict[str, list[str]]:
    """Table names by source. Raises UsageError for a name that no source or more than one has."""
    replicated_names = {
        config.name: replicated_tables(lake, config.name) for config in select_sources(settings, source)
    }
    names_by_source: dict[str, list[str]] = {}
    for name in names:
        sources = [source_name for source_name, tables in replicated_names.items() if name in tables]
        if len(sources) != 1:
            raise _make_lookup_error(name, sources, replicated_names)
        names_by_source.setdefault(sources[0], []).append(name)
    return names_by_source


def _make_lookup_error(name: str, sources: Sequence[str], replicated_names: dict[str, list[str]]) -> UsageError:
    if sources:
        return UsageError(f"table {name!r} is in several sources", ", ".join(sources), "Choose one with --source")
    similar_names = difflib.get_close_matches(
        name, [table for tables in replicated_names.values() for table in tables], n=1
    )
    fix = (
        f"Did you mean {similar_names[0]}?"
        if similar_names
        else "`tidemark status` lists the tables; new ones are added automatically"
    )
    return UsageError(f"no table {name!r} is replicated", "the lake", fix)
