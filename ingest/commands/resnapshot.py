"""New snapshots on request: of some tables, or of everything after a source's log was lost, or one writer's."""

from collections.abc import Collection, Sequence

from ingest.commands.table_lookup import chosen, locate, replicated
from ingest.common.errors import UsageError
from ingest.config.sources_file import Settings
from ingest.lake import Lake
from ingest.sources import source_kinds


def queue_tables(lake: Lake, settings: Settings, table_names: Sequence[str], source: str | None = None) -> list[str]:
    """Queues new snapshots of tables by name; gives a line for each.

    source: the one that is meant; None: the one that has them. Raises UsageError, with nothing queued, for a name
    that no source or more than one has.
    """
    found = locate(lake, settings, table_names, source)
    return [
        f"{of}: {name} is queued" for of, names in found.items() for name in lake.tables.queue(of, "asked for", names)
    ]


def start_over(lake: Lake, settings: Settings, source: str | None = None) -> list[str]:
    """Makes the slots of a source (None: of all) anew and queues all of its tables; gives a line for each.

    Raises Failure while a stream runs.
    """
    lines = []
    for one in chosen(settings, source):
        source_kinds.start_over(lake, one, settings.settings)
        lines += [f"{one.name}: {name} is queued" for name in replicated(lake, one.name)]
    return lines


def start_over_writers(
    lake: Lake, settings: Settings, writers: Collection[int], source: str | None = None
) -> list[str]:
    """Makes the slots of some writers of a source anew and queues the tables that lack changes for it; gives a line for
    each.

    source: may be None where there is one. Raises UsageError without it, Failure while a stream reads from one of them.
    """
    names = list(settings.sources)
    if source is None and len(names) > 1:
        raise UsageError("which source?", "sources.yml", f"Give --source: one of {', '.join(names)}")
    one = settings.source(source or names[0])
    queued = source_kinds.start_over_writers(lake, one, settings.settings, writers)
    return [f"{one.name}: {name} is queued" for name in queued]
