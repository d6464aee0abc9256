"""Tables as a person names them on the command line, found among the replicated ones."""

import difflib
from collections.abc import Sequence

from ingest.common.errors import UsageError
from ingest.config.sources_file import Settings, Source
from ingest.lake import Lake
from ingest.lake.source_tables import ENDED


def chosen(settings: Settings, source: str | None) -> list[Source]:
    """The source of this name; None: all."""
    return list(settings.sources.values()) if source is None else [settings.source(source)]


def replicated(lake: Lake, source: str) -> list[str]:
    """Names of the source's tables in the lake."""
    return sorted(table.table_name for table in lake.tables.read(source).values() if table.state != ENDED)


def locate(lake: Lake, settings: Settings, names: Sequence[str], source: str | None) -> dict[str, list[str]]:
    """Table names by their source. Raises UsageError for one that no source has, or more than one."""
    known = {one.name: replicated(lake, one.name) for one in chosen(settings, source)}
    found: dict[str, list[str]] = {}
    for name in names:
        sources = [of for of, tables in known.items() if name in tables]
        if len(sources) != 1:
            raise _not_one(name, sources, known)
        found.setdefault(sources[0], []).append(name)
    return found


def _not_one(name: str, sources: Sequence[str], known: dict[str, list[str]]) -> UsageError:
    if sources:
        return UsageError(f"table {name!r} is in several sources", ", ".join(sources), "Choose one by --source")
    close = difflib.get_close_matches(name, [table for tables in known.values() for table in tables], n=1)
    fix = f"Did you mean {close[0]}?" if close else "`tidemark status` lists them; new tables are taken by themselves"
    return UsageError(f"no table {name!r} is replicated", "the lake", fix)
