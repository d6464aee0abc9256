"""Random changes of a source, jobs and dbt killed at random: lake, row state and buckets equal the source.

Each seed has its own schema, workload and kills: `make soak ARGS="--seeds 1-200"`; a single seed: `--seeds 17`.
"""

import random
import sys
from collections import Counter
from pathlib import Path

import pytest

from ingest.common.errors import Failure
from ingest.config.job_settings import JobSettings
from ingest.config.sources_file import PostgresSource
from ingest.lake import Lake
from ingest.lake.source_tables import DONE
from tests.conftest import Database
from tests.harness.kill_points import kill_at_statement
from tests.harness.pipeline import SourcePipeline, sort_rows
from tests.harness.postgres_jobs import PostgresJobs, Row, chunk_settings
from tests.harness.random_kills import RandomKills
from tests.harness.workload import Workload

ROUNDS = 3
ORDERS = {"id": "int", "customer": "int", "status": "string", "note": "string"}


def test_random_changes_and_kills_keep_everything_equal_to_the_source(
    lake: Lake, source: PostgresSource, settings: JobSettings, tmp_path: Path, database: Database, seed: int
) -> None:
    rng = random.Random(seed)
    workload = Workload(rng, database)
    workload.create(rng.randint(2, 4))
    pipeline = replica_of_orders(lake, source, settings, tmp_path, database)
    small = chunk_settings(settings, rng.choice([1, 1 << 20]), workers=2, chunk_lease_seconds=1.0)
    jobs = PostgresJobs(lake, source, small)
    try:
        for number in range(ROUNDS):
            with RandomKills(jobs, random.Random(seed * ROUNDS + number)):
                for _ in range(rng.randint(3, 12)):
                    workload.change()
                    change_orders(database, rng)
                    if rng.random() < 0.3:
                        workload.alter()
            if rng.random() < 0.3:
                assert (
                    lake.tables.queue_snapshots(source.name, "asked for", [f"public.{workload.tables[0].name}"])
                    is not None
                )
            if rng.random() < 0.5:
                pipeline.ingest()
                kill_dbt(pipeline, rng.randint(1, 30))
            pipeline.sync()
            assert_equal(jobs, pipeline, workload, database)
    except BaseException:
        sys.stderr.write("\n".join(line[:300] for line in workload.statements))
        raise
    finally:
        jobs.close()


def replica_of_orders(
    lake: Lake, source: PostgresSource, settings: JobSettings, folder: Path, database: Database
) -> SourcePipeline:
    """A table whose schema does not change, with one definition of each kind."""
    database.execute(
        "create table orders (id int primary key, customer int, status text, note text);"
        "alter table orders alter note set storage external;"
        "insert into orders select i, i % 5, 'new', repeat('x', 3000) from generate_series(1, 30) i"
    )
    pipeline = SourcePipeline(lake, source, settings, folder)
    view = pipeline.view("orders", ORDERS)
    pipeline.definition(
        "by_customer",
        f"select _row_key, id, customer, status, note from {{{{ rows('{view}') }}}} where status <> 'archived'",
        bucket_by=["customer"],
        object_id="id",
        evaluation="incremental",
    )
    pipeline.definition(
        "counts",
        f"select customer, count(*) as orders from {{{{ ref('{view}') }}}} group by customer",
        bucket_by=[],
        object_id="customer",
        unique_key=["customer"],
    )
    return pipeline


def change_orders(database: Database, rng: random.Random) -> None:
    a, b = rng.randint(1, 40), rng.randint(1, 40)
    database.execute(
        rng.choice(
            [
                f"insert into orders values ({a}, {b % 6}, 'new', repeat('{b}', 2500)) on conflict do nothing",
                f"update orders set status = '{rng.choice(['paid', 'archived', 'new'])}' where id = {a}",
                f"update orders set customer = {b % 6} where id between {a} and {a + 5}",
                f"update orders set id = {b} where id = {a} and not exists (select from orders where id = {b})",
                f"delete from orders where id = {a}",
                f"begin; delete from orders where id = {a}; insert into orders values ({a}, 1, 'back', 'b'); commit",
            ]
        )
    )


def kill_dbt(pipeline: SourcePipeline, statement: int) -> None:
    """dbt is killed at its n-th writing statement."""
    seen: list[str] = []

    def is_next(sql: str) -> bool:
        seen.append(sql)
        return len(seen) > statement

    with pytest.raises(Failure), kill_at_statement(is_next):
        pipeline.model()


def assert_equal(jobs: PostgresJobs, pipeline: SourcePipeline, workload: Workload, database: Database) -> None:
    """Raw rows, row state, bucket rows and replayed op logs equal SQL on the source."""
    tables = [f"public.{table.name}" for table in workload.tables] + ["public.orders"]
    for table_name in tables:
        table = jobs.table(table_name)
        assert table.state == DONE, f"{table_name}: {table.state} {table.note}"
        jobs.assert_equal(table_name)
        names = [column.name for column in table.columns]
        actual: Counter[Row] = Counter()
        for row in pipeline.spark.sql(
            f"select columns, multiplicity from core.row_state where source = '{pipeline.source.name}' "
            f"and table_id = '{table.table_id}' and not deleted"
        ).collect():
            actual[tuple(row.columns.get(name) for name in names)] += row.multiplicity
        expected = jobs.source_rows(table_name)
        assert actual == expected, (
            f"row_state of {table_name}: only lake {actual - expected}, only source {expected - actual}"
        )
    by_customer, counts = (f"{name}_{pipeline.source.name}" for name in ("by_customer", "counts"))
    assert pipeline.bucket(by_customer, "id, customer, status, note") == sort_rows(
        database.execute(
            f"""select '{by_customer}["' || customer || '"]', id, customer, status, note from orders
                where status <> 'archived'"""
        )
    )
    assert pipeline.bucket(counts, "customer, orders") == sort_rows(
        database.execute(f"select '{counts}[]', customer, count(*) from orders group by customer")
    )
    for definition in (by_customer, counts):
        assert pipeline.replayed(definition) == pipeline.logged_rows(definition)
