"""Which buckets a reader may see: the lookups (`materialized: bucket_lookup`) asked with what a request says."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from ingest.commands.op_log import bucket_name
from ingest.common.errors import Failure, UsageError
from ingest.lake.sql_literals import literal
from ingest.project.dbt_project import Project


@dataclass(frozen=True)
class Grant:
    """A bucket that a lookup names. checkpoint_id: the run in which it began to."""

    bucket: str
    lookup: str
    checkpoint_id: int

    def to_json(self) -> str:
        """One JSON object."""
        return json.dumps(asdict(self), ensure_ascii=False)


def resolve(
    spark: SparkSession, request: Mapping[str, str], target: str | None = None, folder: Path | str = "."
) -> list[Grant]:
    """The buckets for a request, by the lookups that ask for nothing else, in the order of their names.

    Raises UsageError if no lookup asks for what the request has.
    """
    lookups = Project(target, folder).lookups
    fitting = {name: asked for name, asked in lookups.items() if set(asked) <= set(request)}
    unused = set(request) - {key for asked in fitting.values() for key in asked}
    if unused or not fitting:
        known = sorted({", ".join(asked) or "nothing" for asked in lookups.values()})
        raise UsageError(
            f"no lookup asks for {', '.join(sorted(unused or request)) or 'nothing'}",
            "the dbt project",
            f"Those that are there ask for: {'; '.join(known)}"
            if known
            else "Add a model with materialized: bucket_lookup",
        )
    grants = [
        grant for name, asked in fitting.items() for grant in _ask(spark, name, {key: request[key] for key in asked})
    ]
    return sorted(grants, key=lambda grant: (grant.bucket, grant.lookup))


def _ask(spark: SparkSession, lookup: str, request: Mapping[str, str]) -> list[Grant]:
    """Raises Failure if what is published asks for something else than the project, so that the values mean another, or
    if the buckets are named by other columns by now.
    """
    table = f"buckets.`{lookup}`"
    if not spark.catalog.tableExists(table):
        return []
    marks = spark.sql(f"SELECT columns FROM core.model_watermarks WHERE model = {literal(lookup)}").collect()
    for mark in marks:
        *asked, _ = json.loads(mark.columns) or [""]
        if [name.lower() for name in asked] != [name.lower() for name in request]:
            raise Failure(
                f"what is published of {lookup} asks for {', '.join(asked) or 'nothing'}, the project for "
                f"{', '.join(request) or 'nothing'}",
                "core.model_watermarks",
                "Run the models; `tidemark plan` says what is waited for",
            )
    bucket = literal(bucket_name(lookup, json.dumps(list(request.values()))))
    rows = spark.sql(f"SELECT object_id, _checkpoint_id FROM {table} WHERE bucket = {bucket}").collect()
    for definition in sorted({row.object_id.partition("[")[0] for row in rows}):
        names = f"{literal(lookup)}, {literal(definition)}"
        marks = spark.sql(f"SELECT definition_hash FROM core.model_watermarks WHERE model IN ({names})").collect()
        if len({mark.definition_hash.partition("-")[2] for mark in marks}) > 1:
            raise Failure(
                f"what is published of {lookup} names buckets of {definition} by other columns than these have by now",
                "core.model_watermarks",
                f"Run {lookup}; `tidemark plan` says what is waited for",
            )
    return [Grant(row.object_id, lookup, row._checkpoint_id) for row in rows]  # noqa: SLF001  # a column of ours
