"""Models of `core` rendered without dbt over views that a test creates: the rows that a model selects, with Spark
alone.
"""

from types import SimpleNamespace
from typing import Any

from jinja2 import Environment
from pyspark.sql import Row, SparkSession

from dbt.adapters.tidemark.lake_statements import NoLake
from dbt.adapters.tidemark.project_graph import ProjectGraph
from dbt.adapters.tidemark.run_state import RunState
from tests.harness.project_copy import ROOT
from tests.unit.calling import Macros

FOLDERS = ("state", "sql_helpers", "events", "row_state", "bucket", "incremental")


class CoreModels:
    """The project's macros as `macros`, with Spark behind `run_query`. A test replaces other macros by setting them."""

    macros: Any

    def __init__(self, spark: SparkSession, *, is_incremental: bool = True) -> None:
        """is_incremental: whether the models' tables exist."""
        self._spark, self._is_incremental = spark, lambda: is_incremental
        spark.sql("create namespace if not exists core")
        self.macros = Macros(
            *FOLDERS,
            run_query=lambda query: spark.sql(query).collect(),
            is_incremental=self._is_incremental,
            execute=True,
            flags=SimpleNamespace(WHICH="run"),
            adapter=SimpleNamespace(are_integers=lambda *_: False),
            model=SimpleNamespace(unique_id="model.tidemark.tested"),
        )
        run = RunState(NoLake(), ProjectGraph({}, ()))
        self.macros.run = lambda: run

    def select(self, model: str) -> list[Row]:
        """The rows that a model selects. Its own table and its inputs are the views of their names."""
        text = (ROOT / f"models/core/{model}.sql").read_text()
        query = (
            Environment(autoescape=False, extensions=["jinja2.ext.do"])
            .from_string(text)
            .render(
                tidemark=self.macros,
                config=lambda **_: "",
                ref=lambda _, name: name,
                source=lambda _, name: name,
                is_incremental=self._is_incremental,
                this=model,
            )
        )
        rows = self._spark.sql(query).collect()
        self.macros.drop_key_chains()
        return rows

    def view(self, name: str, columns: str, *rows: tuple[Any, ...]) -> None:
        """Creates a view of rows with these columns."""
        self._spark.createDataFrame(list(rows), columns).createOrReplaceTempView(name)
