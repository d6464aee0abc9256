"""The adapter: what Jinja calls by `adapter.<name>(...)`."""

from dbt.adapters.spark.impl import SparkAdapter

from dbt.adapters.tidemark.connections import TidemarkConnectionManager


class TidemarkAdapter(SparkAdapter):
    """dbt-spark's adapter for a lake of Tidemark."""

    ConnectionManager = TidemarkConnectionManager
