"""`tidemark check` for a MongoDB source: versions, permissions, collections, post-images. Read-only."""

from collections.abc import Container, Iterator, Sequence

from pymongo.errors import PyMongoError

from ingest.common import findings
from ingest.common.errors import TidemarkError
from ingest.common.findings import Finding, exclusion_level
from ingest.config.job_settings import JobSettings
from ingest.config.sources_file import MongoSource, excluding_pattern
from ingest.sources.mongodb import collection_catalog, mongodb_connection, mongodb_server
from ingest.sources.mongodb.change_stream.change_stream_feed import stream_level
from ingest.sources.mongodb.collection_catalog import Collection
from ingest.sources.mongodb.mongodb_connection import Client, describe_error

_SHOWN = 5


def check(source: MongoSource, settings: JobSettings, needed: Container[str] = ()) -> list[Finding]:
    """The findings; an error of the connection ends the check.

    needed: the names of the collections that definitions read.
    """
    uri, where = source.uri.get_secret_value(), f"source {source.name}"
    all_findings: list[Finding] = []
    try:
        with mongodb_connection.connect(uri, settings.connect_timeout_seconds) as client:
            mongodb_server.identify_deployment(client, mongodb_connection.describe_endpoint(uri))
            all_findings.append(Finding("ok", f"MongoDB {client.server_info()['version']}, a replica set", where))
            level = stream_level(client, source)
            target = "the whole deployment" if level == mongodb_server.CLUSTER else f"database {level}"
            all_findings.append(Finding("ok", f"a change stream of {target} can be opened", where))
            if not mongodb_server.can_write_heartbeat(client, level):
                all_findings.append(
                    Finding(
                        "warning",
                        "the role can't write the heartbeat, so the last change may be visible ten seconds later",
                        where,
                        f"Grant readWrite on {'.'.join(mongodb_server.heartbeat_collection(level))}",
                    )
                )
            all_findings += _collections(client, source, where, needed)
    except TidemarkError as error:
        all_findings.append(findings.finding_from_error(error))
    except PyMongoError as error:
        all_findings.append(Finding("error", f"MongoDB rejected a command ({describe_error(error)})", where))
    return all_findings


def _collections(client: Client, source: MongoSource, where: str, needed: Container[str]) -> Iterator[Finding]:
    selected = collection_catalog.list_collections(client, source)
    left = [
        collection
        for collection in selected
        if collection.kind and collection.full_name not in source.collections and collection.full_name not in needed
    ]
    tables = [collection for collection in selected if collection not in left]
    usable = []
    for collection in tables:
        problem = collection.problem or collection_catalog.read_problem(client, collection)
        if problem:
            name = collection.full_name
            level = exclusion_level(
                required=name in needed or source.names(name) or collection.name == collection_catalog.ANY
            )
            fix = f"Exclude it in sources.yml: {excluding_pattern(name)}" if level == "warning" else ""
            yield Finding(level, f"it will be left out: {problem}", f"{where}, collection {name}", fix)
        else:
            usable.append(collection)
    if not tables:
        yield Finding("warning", "no collection is selected", where, "Correct `collections` in sources.yml")
    elif not usable:
        yield Finding("error", "none of the selected collections can be replicated", where)
    else:
        yield Finding("ok", f"{len(usable)} of {len(tables)} collections can be replicated", where)
    yield from _left_out(left, where)
    yield from _without_images(usable, where)


def _left_out(left: Sequence[Collection], where: str) -> Iterator[Finding]:
    """Report selected views, time series and capped collections."""
    for kind in sorted({collection.kind for collection in left}):
        names = [collection.full_name for collection in left if collection.kind == kind]
        several = "s" if len(names) > 1 and not kind.endswith("s") else ""
        yield Finding("ok", f"{len(names)} {kind}{several} left out: {_shown(names)}", where)


def _shown(names: Sequence[str]) -> str:
    return f"{', '.join(names[:_SHOWN])}{' and others' if names[_SHOWN:] else ''}"


def _without_images(usable: Sequence[Collection], where: str) -> Iterator[Finding]:
    bare = [collection.full_name for collection in usable if not collection.has_images]
    if bare:
        yield Finding(
            "warning",
            f"{_shown(bare)} keep no post-images: an update is committed with the document as it is when it is looked "
            "up, so only the final state of each document is guaranteed",
            where,
            "For transactional consistency run collMod with changeStreamPreAndPostImages: {enabled: true}",
        )
