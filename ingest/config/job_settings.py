"""All settings of the jobs: default, unit and reason.

`JobSettings` is the `settings:` mapping of `sources.yml`; no other module defines defaults, and unknown
settings are rejected. Sizes are bytes (`64MiB` in the file), times are seconds.
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
        description="Bytes of received messages at which a batch is committed. It limits the stream's memory to a few "
        "times this size, for transactions of any size.",
    )
    commit_interval_seconds: Seconds = Field(
        1.0,
        description="Seconds after which a batch is committed even if it is small: a part of the latency. Each commit "
        "takes 0.2 to 0.4 s and writes a file. When a run of the models begins in the same process, a batch that is at "
        "least a tenth of this old is committed early.",
    )
    snapshot_chunk_bytes: Bytes = Field(
        ByteSize(128 * MEBIBYTE),
        description="Bytes of table that one snapshot chunk reads: one file.",
    )
    snapshot_batch_bytes: Bytes = Field(
        ByteSize(512 * MEBIBYTE),
        description="Bytes of table that a snapshot process claims, reads and commits at once, which takes about a "
        "second. This much is read again after a crash, and completed before a stop.",
    )
    snapshot_workers: int = Field(
        2,
        ge=1,
        le=256,
        description="Number of chunks read at once, each over a separate connection; more than the "
        "cluster's cores have no benefit.",
    )
    idle_position_seconds: Seconds = Field(
        3.0,
        description="Seconds after which an idle writer's position is stored, so that it does not hold back the "
        "minimum, and a quiet database does not retain its log.",
    )
    heartbeat_seconds: Seconds = Field(
        1.0,
        description="Seconds without events after which a MongoDB stream writes a heartbeat: more events with the last "
        "clusterTime may follow until a later one is seen.",
    )
    status_interval_seconds: Seconds = Field(
        5.0,
        description="Seconds between status messages to a Postgres server; well under its "
        "wal_sender_timeout (60 s by default).",
    )
    wal_retention_warning_bytes: Bytes = Field(
        ByteSize(10 * 1024 * MEBIBYTE),
        description="Bytes of log that a Postgres server retains for a slot above which `tidemark status` warns: "
        "the server keeps it on its disk until it is read.",
    )
    iceberg_snapshot_retention_seconds: Annotated[float, Field(ge=60, le=31_536_000)] = Field(
        3600.0,
        description="Seconds for which the Iceberg snapshots of the models' tables stay readable, for readers that pin "
        "a release. Each run creates some, and every commit rewrites the list of all.",
    )
    retention_seconds: Annotated[float, Field(ge=3600, le=315_360_000)] = Field(
        604_800.0,
        description="Seconds for which maintenance keeps raw rows after the models of `core` have passed them, "
        "tombstones after all definitions have, and superseded releases and checkpoints: for investigations.",
    )
    compaction_threshold: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.3,
        description="Share of superseded ops at which maintenance compacts an op log, and of deleted rows at which "
        "it rewrites files. A log is rewritten each time, so a row is written about 1 / share times.",
    )
    compaction_min_files: int = Field(
        50,
        ge=2,
        description="Number of small files (under 16 MiB) of a table at which maintenance compacts them. Each run "
        "and each commit adds some, and readers open all of them.",
    )
    chunk_lease_seconds: Seconds = Field(
        60.0,
        description="Seconds after which a chunk whose lease is no longer renewed may be claimed by another process.",
    )
    catalog_poll_seconds: Seconds = Field(
        5.0,
        description="Seconds between two polls of the source's catalog for changes that are not in its log: "
        "dropped tables, columns and partitions.",
    )
    connect_timeout_seconds: Seconds = Field(
        10.0, description="Seconds within which a source must accept a connection."
    )
