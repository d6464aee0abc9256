"""Reads the models' tables: the last release, each definition's last evaluation, failed and waiting models."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.functions import expr

# The models of `core`, in the order of a run.
CORE = ("checkpoints", "events", "table_status", "row_state")


def read_release(spark: SparkSession) -> dict[str, Any] | None:
    """The newest release, of a run or of maintenance: release_id, published_at, age_seconds; None before the first."""
    if not spark.catalog.tableExists("core.releases"):
        return None
    newest = "max_by(struct(release_id, unix_micros(published_at) AS at), release_id)"
    ((newest_release,),) = spark.sql(f"SELECT {newest} FROM core.releases").collect()
    if newest_release is None:
        return None
    published_at = _timestamp(newest_release.at)
    age = max(0.0, (datetime.now(timezone.utc) - published_at).total_seconds())
    return {"release_id": newest_release.release_id, "published_at": published_at, "age_seconds": age}


def read_definition_tables(spark: SparkSession) -> dict[str, str]:
    """By definition that was ever published: its table, as `schema.name`; its log has `__ops` after the name."""
    if not spark.catalog.tableExists("core.releases"):
        return {}
    rows = spark.sql(
        "SELECT model, max_by(`table`, release_id) AS rows_table FROM core.releases "
        "WHERE `table` NOT LIKE 'core.%' AND `table` NOT LIKE '%\\_\\_ops' GROUP BY model"
    ).collect()
    return {row.model: row.rows_table for row in rows}


def list_op_logs(spark: SparkSession) -> dict[str, bool]:
    """By the table of a definition's rows, published or not, as `schema.name`: whether it exists beside its op log.

    Looked for in `buckets`, and in the schemas of published definitions.
    """
    found: dict[str, bool] = {}
    for schema in sorted({"buckets", *(each.partition(".")[0] for each in read_definition_tables(spark).values())}):
        if spark.catalog.databaseExists(schema):
            names = {row.tableName for row in spark.sql(f"SHOW TABLES IN {schema}").collect() if not row.isTemporary}
            of_logs = sorted(name.removesuffix("__ops") for name in names if name.endswith("__ops"))
            found |= {f"{schema}.{name}": name in names for name in of_logs}
    return found


def list_definition_tables(spark: SparkSession) -> list[str]:
    """The tables with the rows of definitions, published or not, as `schema.name`: those with an op log beside them."""
    return [table for table, exists in list_op_logs(spark).items() if exists]


def read_evaluations(spark: SparkSession) -> dict[str, dict[str, Any]]:
    """By definition: the last recorded evaluation, as kind, why, put, removed, at."""
    if not spark.catalog.tableExists("core.releases"):
        return {}
    newest = "max_by(struct(evaluation, unix_micros(published_at) AS at), release_id) AS newest"
    evaluations = spark.table("core.releases").where("evaluation IS NOT NULL").groupBy("model").agg(expr(newest))
    rows = evaluations.select("model", "newest.*").collect()
    return {row.model: {**json.loads(row.evaluation), "at": _timestamp(row["at"])} for row in rows}


def read_model_states(spark: SparkSession) -> dict[str, dict[str, Any]]:
    """By model, for those that did not publish in their last run: state (failed or waiting), reason, since."""
    if not spark.catalog.tableExists("core.model_states"):
        return {}
    rows = spark.sql("SELECT model, state, reason, unix_micros(since) AS since FROM core.model_states").collect()
    return {row.model: {"state": row.state, "reason": row.reason, "since": _timestamp(row.since)} for row in rows}


def list_definitions(
    watermarks: Sequence[Mapping[str, Any]],
    states: Mapping[str, Mapping[str, Any]],
    evaluations: Mapping[str, Mapping[str, Any]],
) -> list[dict[str, Any]]:
    """For each definition and source: its position, its state, and the definition's last evaluation.

    watermarks: rows of core.model_watermarks. states: see `read_model_states`. evaluations: see `read_evaluations`. A
    definition that was never published has one entry, with source None.
    """
    of_definitions = [row for row in watermarks if row["definition_hash"] is not None]
    unpublished = sorted(states.keys() - {row["model"] for row in of_definitions} - set(CORE))
    no_position = {"source": None, "checkpoint_id": None, "position": None}
    published = {"state": "published", "reason": None, "since": None}
    return [
        {
            "definition": row["model"],
            **{name: row[name] for name in no_position},
            **states.get(row["model"], published),
            "evaluation": evaluations.get(row["model"]),
        }
        for row in [*of_definitions, *({"model": model, **no_position} for model in unpublished)]
    ]


def _timestamp(micros: int) -> datetime:
    return datetime.fromtimestamp(micros / 1e6, timezone.utc)
