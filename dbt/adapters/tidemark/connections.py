"""Connections to Spark, by the methods of dbt-spark."""

from dataclasses import dataclass
from typing import Any

from dbt.adapters.contracts.connection import Connection, ConnectionState
from dbt.adapters.spark.connections import SparkConnectionManager, SparkConnectionMethod, SparkCredentials
from dbt_common.exceptions import DbtRuntimeError
from dbt_common.invocation import get_invocation_id

from ingest.config.dbt_profile import REQUIRED_SETTINGS

_ANSI_MODE = "spark.sql.ansi.enabled"


def branch_name() -> str:
    """The Iceberg branch on which this invocation of dbt stages what it writes."""
    return f"run_{get_invocation_id().replace('-', '')}"


@dataclass
class TidemarkCredentials(SparkCredentials):
    """The settings of dbt-spark, with those that Tidemark needs: this invocation's branch, UTC, and Spark's ANSI mode
    unless the profile switches it off.

    In this mode a cast that cannot read its value, an overflow or a division by zero fails the definition, which keeps
    its published state. Without it each of these silently returns NULL, and rows would leave their buckets. Where NULL
    is intended, use `try_cast`.
    """

    def __post_init__(self) -> None:
        """Adds the settings. dbt-spark would switch the ANSI mode off, whatever the profile says.

        Raises DbtRuntimeError if the profile has another value of a setting that the results depend on.
        """
        ansi_mode = self.server_side_parameters.get(_ANSI_MODE, "true")
        super().__post_init__()
        settings = self.server_side_parameters
        for name, required in REQUIRED_SETTINGS.items():
            value = str(settings.setdefault(name, required))
            if value.lower() != required.lower():
                raise DbtRuntimeError(f"{name} is {value}, and Tidemark's models need {required}. Remove the setting.")
        # Types are read as Spark prints them: by default they end after 25 fields.
        settings.setdefault("spark.sql.debug.maxToStringFields", "100000")
        settings.update({_ANSI_MODE: str(ansi_mode), "spark.wap.branch": branch_name()})

    @property
    def type(self) -> str:
        """The type in profiles.yml."""
        return "tidemark"


class TidemarkConnectionManager(SparkConnectionManager):
    """dbt-spark's connections under the type of this adapter."""

    TYPE = "tidemark"

    @classmethod
    def open(cls, connection: Connection) -> Connection:
        """Opens a connection. With the method `session` it uses `SharedSession`."""
        if connection.state == ConnectionState.OPEN or connection.credentials.method != SparkConnectionMethod.SESSION:
            return super().open(connection)
        from dbt.adapters.spark.session import SessionConnectionWrapper  # loads PySpark

        from dbt.adapters.tidemark.session_connection import SessionConnection

        settings = connection.credentials.server_side_parameters
        connection.handle = SessionConnectionWrapper(SessionConnection(server_side_parameters=settings))
        connection.state = ConnectionState.OPEN
        return connection

    def select(self, sql: str) -> list[dict[str, Any]]:
        """The rows of a statement by column name, with Python's types; none for a statement without a result."""
        _, cursor = self.add_query(sql, auto_begin=False)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall() or []]
