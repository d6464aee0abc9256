"""Connections of the method `session`: to Spark in this process, or to a Spark Connect server."""

import os
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from dbt.adapters.spark.session import Connection, Cursor
from dbt_common.exceptions import DbtRuntimeError
from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from ingest.common.errors import Failure
from ingest.lake.spark_session import LOG, raise_if_java_exited, start_local

# SET or RESET, or a statement that may be one, after comments.
CHANGES_SETTINGS = re.compile(
    r"(?:\s|/\*(?:(?!\*/).)*\*/|--[^\n]*\n)*(?:set|reset|execute\s+immediate)\b", re.IGNORECASE | re.DOTALL
)


class SharedSession:
    """The session that all connections of this process share, with the settings of the connection that used it last.

    dbt-spark sets all settings of the profile before each statement, with a call of Java or of the server for each one,
    while other threads wait. Here that happens only after another invocation or a statement has changed them; changes
    by Python code are not noticed.
    """

    _lock: ClassVar = threading.Lock()
    _session: ClassVar[SparkSession | None] = None
    _settings: ClassVar[Mapping[str, Any] | None] = None

    @classmethod
    def with_settings(cls, settings: Mapping[str, Any]) -> SparkSession:
        """The session, with these settings."""
        with cls._lock:
            if cls._session is None or cls._settings != settings or _is_stopped(cls._session):
                cls._settings = None
                start_spark(settings)
                builder = SparkSession.builder.enableHiveSupport()
                for name, value in settings.items():
                    builder = builder.config(name, value)
                cls._session, cls._settings = builder.getOrCreate(), dict(settings)
            return cls._session

    @classmethod
    def forget_settings(cls) -> None:
        """The next statement sets its settings again."""
        with cls._lock:
            cls._settings = None


def start_spark(settings: Mapping[str, str]) -> None:
    """Starts Spark as the ingest jobs do, unless it runs: Java's output goes to `spark.log`, not to dbt's terminal."""
    by_settings = "spark.remote" in settings or settings.get("spark.api.mode") == "connect"
    if by_settings or "SPARK_REMOTE" in os.environ or is_remote():
        return  # Spark Connect
    log = Path(os.environ.get("DBT_LOG_PATH", LOG.parent)) / LOG.name
    with _dbt_errors():
        # dbt-spark's sessions have Hive's tables, unless the profile sets another catalog.
        start_local({"spark.sql.catalogImplementation": "hive", **settings}, log)


@contextmanager
def _dbt_errors() -> Iterator[None]:
    """Raises a failed start of Spark, and the end of its Java process, as errors of dbt that name Spark's log."""
    try:
        try:
            yield
        except (Py4JError, ConnectionError) as error:
            raise_if_java_exited(error)
            raise
    except Failure as failure:
        raise DbtRuntimeError(str(failure)) from failure


def _is_stopped(session: Any) -> bool:
    """Whether Spark, or the session of a Spark Connect server, has ended."""
    is_remote = hasattr(session, "is_stopped")
    return bool(session.is_stopped if is_remote else session.sparkContext._jsc is None)


class SessionCursor(Cursor):
    """dbt-spark's cursor, on the shared session."""

    def execute(self, sql: str, *parameters: Any) -> None:
        """Executes a statement. Raises DbtRuntimeError if Spark rejects it, and Spark's error if it fails."""
        session = SharedSession.with_settings(self.server_side_parameters)
        try:
            with _dbt_errors():
                self._df = session.sql(sql % parameters if parameters else sql)
        except AnalysisException as error:
            raise DbtRuntimeError(str(error)) from error
        finally:
            if CHANGES_SETTINGS.match(sql):
                SharedSession.forget_settings()

    def fetchall(self) -> Any:
        """The rows of the last statement, see dbt-spark's cursor."""
        with _dbt_errors():
            return super().fetchall()


class SessionConnection(Connection):
    """dbt-spark's connection, with these cursors."""

    def cursor(self) -> SessionCursor:
        """A new cursor."""
        return SessionCursor(server_side_parameters=self.server_side_parameters)
