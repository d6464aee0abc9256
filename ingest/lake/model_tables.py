"""Reads the models' own tables: the last release, each definition's last evaluation, models that failed or wait."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.functions import expr

# The models of `core`, in the order of a run.
CORE = ("checkpoints", "events", "table_status", "row_state")


def release(spark: SparkSession) -> dict[str, Any] | None:
    """The newest release, by a run or by maintenance: release_id, published_at, age_seconds."""
    if not spark.catalog.tableExists("core.releases"):
        return None
    newest = "max_by(struct(release_id, unix_micros(published_at) AS at), release_id)"
    ((found,),) = spark.sql(f"SELECT {newest} FROM core.releases").collect()
    if found is None:
        return None
    at = _moment(found.at)
    age = max(0.0, (datetime.now(timezone.utc) - at).total_seconds())
    return {"release_id": found.release_id, "published_at": at, "age_seconds": age}


def evaluations(spark: SparkSession) -> dict[str, dict[str, Any]]:
    """By definition: the last evaluation that is still recorded, as kind, why, put, removed, at."""
    if not spark.catalog.tableExists("core.releases"):
        return {}
    releases = spark.table("core.releases")
    if "evaluation" not in releases.columns:  # made by an earlier Tidemark
        return {}
    newest = "max_by(struct(evaluation, unix_micros(published_at) AS at), release_id) AS newest"
    told = releases.where("evaluation IS NOT NULL").groupBy("model").agg(expr(newest)).select("model", "newest.*")
    return {row.model: {**json.loads(row.evaluation), "at": _moment(row["at"])} for row in told.collect()}


def states(spark: SparkSession) -> dict[str, dict[str, Any]]:
    """By model, for those that published nothing in their last run: state (failed or waiting), reason, since."""
    if not spark.catalog.tableExists("core.model_states"):
        return {}
    rows = spark.sql("SELECT model, state, reason, unix_micros(since) AS since FROM core.model_states").collect()
    return {row.model: {"state": row.state, "reason": row.reason, "since": _moment(row.since)} for row in rows}


def definitions(
    marks: Sequence[Mapping[str, Any]], found: Mapping[str, Mapping[str, Any]], done: Mapping[str, Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """For each definition and source: its position, its state, and the definition's last evaluation.

    marks: rows of core.model_watermarks. found: see `states`. done: see `evaluations`. A definition that was never
    published has one entry, with source None.
    """
    placed = [mark for mark in marks if mark["definition_hash"] is not None]
    missing = sorted(found.keys() - {mark["model"] for mark in placed} - set(CORE))
    nowhere = {"source": None, "checkpoint_id": None, "position": None}
    published = {"state": "published", "reason": None, "since": None}
    return [
        {
            "definition": mark["model"],
            **{name: mark[name] for name in nowhere},
            **found.get(mark["model"], published),
            "evaluation": done.get(mark["model"]),
        }
        for mark in [*placed, *({"model": model, **nowhere} for model in missing)]
    ]


def _moment(micros: int) -> datetime:
    return datetime.fromtimestamp(micros / 1e6, timezone.utc)
