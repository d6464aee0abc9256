"""Which buckets a reader may see: queries the lookups (`materialized: bucket_lookup`) with a request's values."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from ingest.commands.op_log import make_bucket_name
from ingest.common.errors import Failure, UsageError
from ingest.lake.model_tables import read_definition_tables
from ingest.lake.sql_literals import literal
from ingest.project.dbt_project import Project


@dataclass(frozen=True)
class BucketGrant:
    """A bucket that a lookup grants. checkpoint_id: the run that added it."""

    bucket: str
    lookup: str
    checkpoint_id: int

    def to_json(self) -> str:
        """One JSON object."""
        return json.dumps(asdict(self), ensure_ascii=False)


def find_grants(
    spark: SparkSession, request: Mapping[str, str], target: str | None = None, folder: Path | str = "."
) -> list[BucketGrant]:
    """The buckets for a request, by the lookups whose parameters are all in the request, sorted by bucket.

    Raises UsageError if no lookup uses one of the request's values.
    """
    lookups = Project(target, folder).lookups
    matching = {name: parameters for name, parameters in lookups.items() if set(parameters) <= set(request)}
    unused = set(request) - {key for parameters in matching.values() for key in parameters}
    if unused or not matching:
        parameter_lists = sorted({", ".join(parameters) or "nothing" for parameters in lookups.values()})
        raise UsageError(
            f"no lookup takes {', '.join(sorted(unused or request)) or 'nothing'}",
            "the dbt project",
            f"The project's lookups take: {'; '.join(parameter_lists)}"
            if parameter_lists
            else "Add a model with materialized: bucket_lookup",
        )
    grants = [
        grant
        for name, parameters in matching.items()
        for grant in _query_lookup(spark, name, {key: request[key] for key in parameters})
    ]
    return sorted(grants, key=lambda grant: (grant.bucket, grant.lookup))


def _query_lookup(spark: SparkSession, lookup: str, request: Mapping[str, str]) -> list[BucketGrant]:
    """The buckets that a lookup grants for a request.

    Raises Failure if the published lookup has other parameters than the project's, or if the buckets that it grants
    are now bucketed by other columns.
    """
    table = read_definition_tables(spark).get(lookup, "")
    if not table or not spark.catalog.tableExists(table):
        return []
    rows = spark.sql(f"SELECT columns FROM core.model_watermarks WHERE model = {literal(lookup)}").collect()
    for row in rows:
        *parameters, _ = json.loads(row.columns) or [""]
        if [name.lower() for name in parameters] != [name.lower() for name in request]:
            raise Failure(
                f"lookup {lookup}: the published version takes {', '.join(parameters) or 'nothing'}, the project's "
                f"{', '.join(request) or 'nothing'}",
                "core.model_watermarks",
                "Run the models; `tidemark plan` shows what waits",
            )
    bucket = literal(make_bucket_name(lookup, json.dumps(list(request.values()))))
    rows = spark.sql(f"SELECT object_id, _checkpoint_id FROM {table} WHERE bucket = {bucket}").collect()
    for definition in sorted({row.object_id.partition("[")[0] for row in rows}):
        model_names = f"{literal(lookup)}, {literal(definition)}"
        hashes = spark.sql(
            f"SELECT definition_hash FROM core.model_watermarks WHERE model IN ({model_names})"
        ).collect()
        if len({row.definition_hash.partition("-")[2] for row in hashes}) > 1:
            raise Failure(
                f"lookup {lookup}: its published version names buckets of {definition} by columns that have changed",
                "core.model_watermarks",
                f"Run {lookup}; `tidemark plan` shows what waits",
            )
    return [BucketGrant(row.object_id, lookup, row._checkpoint_id) for row in rows]  # noqa: SLF001  # a column name
