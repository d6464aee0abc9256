"""pgbench as a workload: the balances of its four tables have the same sum after every transaction."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from ingest.devservers.embedded_servers import embedded_postgres
from tests.conftest import Database
from tests.harness.pipeline import SourcePipeline

TABLES = {"branches": ("bid", "bbalance"), "tellers": ("tid", "tbalance"), "accounts": ("aid", "abalance")}
_PROGRAM = str(embedded_postgres() / "pgbench")


def pgbench_tables(database: Database) -> None:
    """Creates and fills the tables of pgbench."""
    subprocess.run([_PROGRAM, "-i", "-q", database.dsn], check=True, capture_output=True)
    database.execute("alter table pgbench_history replica identity full")


@contextmanager
def pgbench(database: Database, clients: int, rate: int) -> Iterator[None]:
    """Runs clients that make `rate` transactions a second in total."""
    running = subprocess.Popen(
        [_PROGRAM, "-n", "-c", str(clients), "-R", str(rate), "-T", "1500", database.dsn],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        running.terminate()
        running.wait()


def balances(pipeline: SourcePipeline) -> dict[str, int]:
    """The sums of branches, tellers, accounts and the history's deltas, at the published checkpoint."""
    sums = " union all ".join(
        f"select '{table}', sum(cast(columns['{column}'] as bigint) * multiplicity) from core.row_state "
        f"where source = '{pipeline.source.name}' and table_name = 'public.pgbench_{table}' and not deleted"
        for table, column in [*((t, c[1]) for t, c in TABLES.items()), ("history", "delta")]
    )
    return {row[0]: row[1] or 0 for row in pipeline.spark.sql(sums).collect()}


def have_ready_snapshots(pipeline: SourcePipeline, tables: int) -> bool:
    """Whether the snapshots of this number of tables are admitted."""
    statuses = pipeline.rows(
        "select max_by(status, checkpoint_id) from core.table_status "
        f"where source = '{pipeline.source.name}' group by table_id"
    )
    return statuses == [("ready",)] * tables


def assert_pgbench_equals(pipeline: SourcePipeline, database: Database) -> None:
    """The lake's rows equal the source's."""
    assert len(set(balances(pipeline).values())) == 1
    for table, (key, balance) in TABLES.items():
        rows = pipeline.rows(
            f"select int(columns['{key}']), int(columns['{balance}']) from core.row_state "
            f"where source = '{pipeline.source.name}' and table_name = 'public.pgbench_{table}' and not deleted"
        )
        assert sorted(rows) == sorted(database.execute(f"select {key}, {balance} from pgbench_{table}"))
