"""`tidemark resnapshot`: new snapshots of tables, or of all tables of a source or writer whose log was lost."""

from collections.abc import Collection, Iterator, Sequence

from ingest.commands.table_lookup import locate_tables, replicated_tables, select_sources
from ingest.common.errors import UsageError
from ingest.config.sources_file import Settings
from ingest.lake import Lake
from ingest.sources import source_kinds


def queue_tables(lake: Lake, settings: Settings, table_names: Sequence[str], source: str | None = None) -> list[str]:
    """Queues new snapshots of tables by name; returns a line for each.

    source: the source of the tables; None: the one that has them. Raises UsageError, before anything is queued, for a
    name that no source or more than one has.
    """
    names_by_source = locate_tables(lake, settings, table_names, source)
    return [
        f"{source_name}: {name} is queued"
        for source_name, names in names_by_source.items()
        for name in lake.tables.queue_snapshots(source_name, "asked for", names)
    ]


def resnapshot_sources(lake: Lake, settings: Settings, source: str | None = None) -> Iterator[str]:
    """Recreates the slots of a source (None: of all) and queues all of its tables; yields a line for each.

    Raises Failure while a stream runs; the sources before are queued then.
    """
    for source_config in select_sources(settings, source):
        source_kinds.reset_source(lake, source_config, settings.settings)
        for name in replicated_tables(lake, source_config.name):
            yield f"{source_config.name}: {name} is queued"


def resnapshot_writers(
    lake: Lake, settings: Settings, writers: Collection[int], source: str | None = None
) -> list[str]:
    """Recreates the slots of some writers of a source and queues the tables that lack changes; returns a line for each.

    source: may be None if only one is configured. Raises UsageError without it, Failure while a
    stream reads from one of the slots.
    """
    source_names = list(settings.sources)
    if source is None and len(source_names) > 1:
        raise UsageError(
            "--source is required (several sources are configured)",
            "sources.yml",
            f"Choose one of {', '.join(source_names)}",
        )
    source_config = settings.source(source or source_names[0])
    table_names = source_kinds.reset_writers(lake, source_config, settings.settings, writers)
    return [f"{source_config.name}: {name} is queued" for name in table_names]
