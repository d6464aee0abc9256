"""Every setting of the jobs, in one place: default, unit and reason.

`JobSettings` is the `settings:` mapping of `sources.yml`; no other module has a default of its own,
and an unknown setting is refused. Sizes are bytes (`64MiB` in the file), times are seconds.
"""

from typing import Annotated

from pydantic import BaseModel, ByteSize, ConfigDict, Field

MEBIBYTE = 1024 * 1024

Seconds = Annotated[float, Field(gt=0, le=86400)]
Bytes = Annotated[ByteSize, Field(ge=MEBIBYTE)]


class JobSettings(BaseModel):
    """The settings of the jobs. In the file: `settings: {commit_max_bytes: 32MiB}`."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    commit_max_bytes: Bytes = Field(
        ByteSize(64 * MEBIBYTE),
        description="Bytes of received messages after which a landing is written; bounds the "
        "stream's memory to a few times this, whatever the size of a transaction.",
    )
    commit_interval_seconds: Seconds = Field(
        1.0,
        description="Seconds after which a landing is written though it is small: a part of the "
        "latency. Each costs a commit of 0.2 to 0.4 s, and a file.",
    )
    snapshot_chunk_bytes: Bytes = Field(
        ByteSize(128 * MEBIBYTE),
        description="Bytes of table that one snapshot chunk reads: one file.",
    )
    snapshot_batch_bytes: Bytes = Field(
        ByteSize(512 * MEBIBYTE),
        description="Bytes of table that a snapshotter claims, reads and commits at a time, which costs "
        "about a second: what is read again after a crash, and read to its end before a stop.",
    )
    snapshot_workers: int = Field(
        2,
        ge=1,
        le=256,
        description="Chunks read at once, each over a connection of its own; more than the "
        "cluster has cores gain nothing.",
    )
    idle_position_seconds: Seconds = Field(
        3.0,
        description="Seconds after which an idle writer's position is stored, so that no busy "
        "writer waits for it and a quiet database doesn't keep its log.",
    )
    heartbeat_seconds: Seconds = Field(
        1.0,
        description="Seconds of silence after which a MongoDB stream writes its heartbeat: the "
        "last event's clusterTime may grow until a later one is seen.",
    )
    status_interval_seconds: Seconds = Field(
        5.0,
        description="Seconds between status messages to a Postgres server; well under its "
        "wal_sender_timeout (60 s by default).",
    )
    wal_retention_warning_bytes: Bytes = Field(
        ByteSize(10 * 1024 * MEBIBYTE),
        description="Bytes of log that a Postgres server keeps for a slot above which `tidemark status` warns: "
        "it keeps them until they are read, on its own disk.",
    )
    iceberg_snapshot_retention_seconds: Annotated[float, Field(ge=60, le=31_536_000)] = Field(
        3600.0,
        description="Seconds for which the Iceberg snapshots of the models' tables stay readable, for whoever pins a "
        "publication. Each run makes some, and every commit writes the list of all anew.",
    )
    retention_seconds: Annotated[float, Field(ge=3600, le=315_360_000)] = Field(
        604_800.0,
        description="Seconds for which upkeep leaves raw rows and tombstones after all definitions have passed them, "
        "and superseded manifests and checkpoints: they are for people who look into what happened.",
    )
    compaction_threshold: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.3,
        description="Share of superseded ops from which upkeep compacts an op log, and of deleted rows from which it "
        "rewrites files: a log is written anew each time, so a row is written about 1 / share times.",
    )
    compaction_min_files: int = Field(
        50,
        ge=2,
        description="Number of small files (under 16 MiB) of a table from which upkeep puts them together. Each run "
        "and each landing adds some, and whoever reads opens all of them.",
    )
    chunk_lease_seconds: Seconds = Field(
        60.0,
        description="Seconds after which a chunk whose snapshotter no longer renews its lease may be tried by another.",
    )
    catalog_poll_seconds: Seconds = Field(
        5.0,
        description="Seconds between looks at the source's catalogue for what its log doesn't "
        "tell: dropped tables, columns and partitions.",
    )
    connect_timeout_seconds: Seconds = Field(10.0, description="Seconds that a source has to accept a connection.")
