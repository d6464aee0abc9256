"""The dbt adapter `tidemark`: dbt-spark's, with the state of a run, its releases, and the checks of definitions.

Connections are dbt-spark's: a Spark session in the process, Spark Connect, Thrift. `dbt` and `dbt/adapters` are
namespaces of dbt, and have no `__init__.py` here.
"""

from dbt.adapters.base.plugin import AdapterPlugin

from dbt.adapters.tidemark.connections import TidemarkConnectionManager, TidemarkCredentials
from dbt.adapters.tidemark.impl import TidemarkAdapter
from dbt.include import tidemark

__all__ = ["Plugin", "TidemarkAdapter", "TidemarkConnectionManager", "TidemarkCredentials"]

Plugin = AdapterPlugin(
    adapter=TidemarkAdapter,  # type: ignore[arg-type]  # dbt-spark's neither fits the protocol
    credentials=TidemarkCredentials,
    include_path=tidemark.PACKAGE_PATH,
    dependencies=["spark"],
)
