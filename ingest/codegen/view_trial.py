"""Tests a generated view on Spark: renders it with the package's macros and analyses it over an empty `row_state`."""

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from jinja2 import Environment, TemplateError
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from ingest.common.errors import first_message_line, one_line
from ingest.lake.spark_session import raise_if_java_exited
from ingest.project.dbt_package import ROOT

# The macros that generated views call.
_FILES = ("casts/*.sql", "sql_helpers/literal.sql")
_ROWS, _VIEW = "tidemark_trial_rows", "tidemark_trial_view"
_ROW_STATE = (
    "source string, table_id string, table_name string, row_key string, columns map<string, string>, "
    "multiplicity bigint, deleted boolean, checkpoint_id bigint"
)


class ViewTrial:
    """Tests all views on one Spark session, which the first view starts.

    spark: starts the session. macros: the folder of the dbt package's macros.
    """

    def __init__(self, spark: Callable[[], SparkSession], macros: Path = ROOT / "macros") -> None:
        self._start_spark, self._macros = spark, macros
        self._spark: SparkSession | None = None
        self._tidemark: Macros | None = None

    def try_view(self, text: str) -> str:
        """Why Spark rejects a view, given as the text of its model, in one line; empty if it accepts it.

        Raises Failure if Spark can't be started, or its Java process ends.
        """
        if self._spark is None:
            self._spark = self._start_spark()
            self._spark.createDataFrame([], _ROW_STATE).createOrReplaceTempView(_ROWS)
        try:
            self._spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {_VIEW} AS\n{self._render(text)}")
            self._spark.sql(f"EXPLAIN SELECT * FROM {_VIEW}").collect()
        except (PySparkException, Py4JError, TemplateError) as error:
            raise_if_java_exited(error)
            return _summarize(error)
        return ""

    def _render(self, text: str) -> str:
        if self._tidemark is None:
            self._tidemark = Macros(file for pattern in _FILES for file in sorted(self._macros.glob(pattern)))
        template = _make_environment().from_string(text)
        return template.render(
            tidemark=self._tidemark, config=lambda **_: "", ref=lambda *_: _ROWS, source=lambda *_: _ROWS
        )


class Macros:
    """The macros of some files as functions, without dbt; the macros call this object `tidemark`."""

    def __init__(self, files: Iterable[Path], **context: Any) -> None:
        """context: dbt functions that the macros use, such as `run_query`."""
        environment = _make_environment()
        environment.globals |= {"tidemark": self, "return": _return_value} | context
        self._macros: dict[str, Callable[..., str]] = {}
        for file in files:
            # Jinja does not export names that begin with _.
            text = re.sub(r"(\{%-? macro )", r"\1its_", file.read_text())
            self._macros |= vars(environment.from_string(text).module)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            try:
                return str(self._macros[f"its_{name}"](*arguments))
            except _ReturnValue as result:
                return result.args[0]

        return call


class _ReturnValue(Exception):
    """Carries the return value of a macro."""


def _return_value(value: Any) -> None:
    raise _ReturnValue(value)


def _make_environment() -> Environment:
    return Environment(autoescape=False, extensions=["jinja2.ext.do"])  # the output is SQL, not HTML


def _summarize(error: Exception) -> str:
    """The first message line of an error, up to 300 characters."""
    return one_line(first_message_line(str(error)))[:300]
