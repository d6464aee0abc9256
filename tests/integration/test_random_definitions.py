"""Random changes of definitions, data and lake: bucket rows and replayed logs equal SQL on the source.

Each seed has its own definitions, edits, workload, maintenance and kills; a single seed: `--seeds 17`.
"""

import copy
import random
import sys
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ingest.common.errors import Failure
from ingest.config.job_settings import JobSettings
from ingest.config.sources_file import PostgresSource
from ingest.lake import Lake
from tests.conftest import Database
from tests.harness.bucket_client import BucketClient
from tests.harness.kill_points import StatementKilled, intercept_statements
from tests.harness.pipeline import SourcePipeline, sort_rows
from tests.harness.postgres_jobs import PostgresJobs
from tests.harness.random_definitions import Definitions

ROUNDS = 3
SCHEMA = """
    create table orders (id int primary key, customer int, status text, total int);
    create table customers (customer_id int primary key, region text);
    insert into orders select i, i % 4, 'new', i from generate_series(1, 20) i;
    insert into customers values (0, 'EU'), (1, 'EU'), (2, 'US');
"""


def test_randomly_edited_definitions_equal_the_source(
    lake: Lake, source: PostgresSource, settings: JobSettings, tmp_path: Path, database: Database, seed: int
) -> None:
    draw = random.Random(seed)
    database.execute(SCHEMA)
    pipeline = SourcePipeline(lake, source, settings, tmp_path)
    definitions = Definitions(draw, pipeline)
    readers: dict[str, dict[str, BucketClient]] = defaultdict(lambda: defaultdict(BucketClient))
    log = [definitions.change()]
    try:
        for _ in range(ROUNDS):
            pipeline.sync()
            assert_equal(pipeline, definitions, database, readers)
            log += [definitions.change() for _ in range(draw.randint(0, 2))]
            for _ in range(draw.randint(0, 8)):
                log.append(change(draw))
                database.execute(log[-1])
            if draw.random() < 0.2:
                log.append("resnapshot")
                pipeline.lake.tables.queue_snapshots(source.name, "asked for", ["public.orders"])
            if draw.random() < 0.4:
                log.append("dbt is killed")
                pipeline.ingest()
                kill_at_random(draw, pipeline.model)
            if draw.random() < 0.7:
                log.append("maintenance")
                run_some_maintenance(draw, pipeline, definitions)
        pipeline.sync()
        assert_equal(pipeline, definitions, database, readers)
    except BaseException:
        sys.stderr.write("\n".join(log))
        raise


def change(draw: random.Random) -> str:
    a, b = draw.randint(1, 25), draw.randint(0, 5)
    return draw.choice(
        [
            f"insert into orders values ({a}, {b}, 'new', {a}) on conflict do nothing",
            f"insert into orders values ({a}, null, 'odd', {b}) on conflict do nothing",
            f"update orders set status = '{draw.choice(['paid', 'archived', 'new'])}' where id between {a} and {a + 3}",
            f"update orders set customer = {b}, total = total + 1 where id = {a}",
            f"update orders set id = {a} + 100 where id = {a} and not exists (select from orders where id = {a} + 100)",
            f"update orders set total = total where id > {a}",
            f"delete from orders where id = {a}",
            f"delete from orders where id = {a}; insert into orders values ({a}, {b}, 'back', 1)",
            f"insert into customers values ({b}, 'AS') on conflict (customer_id) do update set region = 'AS'",
            f"delete from customers where customer_id = {b}",
            "truncate orders" if draw.random() < 0.1 else f"delete from orders where id > {a + 90}",
        ]
    )


def run_some_maintenance(draw: random.Random, pipeline: SourcePipeline, definitions: Definitions) -> None:
    """Some of the work of `tidemark maintain` on all tables of this source, killed now and then."""

    def work() -> None:
        def operation(step: str, **arguments: object) -> None:
            pipeline.project.run_operation("maintenance_step", step=step, arguments=arguments)

        for name in sorted(definitions.known):
            model = definitions.table_name(name)
            table, log = f"buckets.{model}", f"buckets.{model}__ops"
            if not all(map(pipeline.spark.catalog.tableExists, (table, log))):  # killed between the two
                continue
            operation("compact_log", model=model, log_table=log, superseded_share=0.01)
            for each_table in (table, log):
                operation("compact_files", model=model, table=each_table, deleted_share=0.01, small_files=2)
        operation("purge_tombstones", keep_seconds=0)

    if draw.random() < 0.3:
        kill_at_random(draw, work)
    else:
        work()


def kill_at_random(draw: random.Random, work: Callable[[], object]) -> None:
    """dbt is killed at its n-th statement, if there are so many."""
    remaining = [draw.randint(1, 60)]

    def on_statement(sql: str) -> None:
        remaining[0] -= 1
        if remaining[0] < 0:
            raise StatementKilled(sql)

    with intercept_statements(on_statement), suppress(Failure):
        work()


def assert_equal(
    pipeline: SourcePipeline, definitions: Definitions, database: Database, readers: dict[str, dict[str, BucketClient]]
) -> None:
    for name in definitions.names:
        full = definitions.table_name(name)
        assert definitions.actual(name) == definitions.expected(name, database), name
        replayed = pipeline.replayed(full)
        assert replayed == pipeline.logged_rows(full), name
        # Readers continue from where the last check left them.
        copies = readers[full]
        for op in pipeline.spark.sql(f"select * from buckets.{full}__ops order by op_id").collect():
            if op.op_id > copies[op.bucket].last_op_id:
                copies[op.bucket].apply(op.asDict())
        kept = [
            (bucket, oid, key, data) for bucket, reader in copies.items() for (_, oid, key), data in reader.rows.items()
        ]
        assert sort_rows(kept) == replayed, name
        sums = f"select bucket, sum(checksum) % 4294967296 from buckets.{full}__ops group by bucket"
        assert dict(pipeline.rows(sums)) == {bucket: reader.checksum for bucket, reader in copies.items()}


RUNS = 50


def test_the_number_of_runs_over_a_log_does_not_change_the_result(
    lake: Lake,
    new_source: Callable[..., PostgresSource],
    settings: JobSettings,
    tmp_path: Path,
    database: Database,
) -> None:
    """Three sources of one database: each has the same events, modelled in a different number of runs."""
    draw = random.Random(1)
    database.execute(SCHEMA)
    modelled = SourcePipeline(lake, new_source(), settings, tmp_path)
    replicas = [copy.copy(modelled) for _ in range(3)]
    for pipeline in replicas:
        pipeline.source = new_source()
        orders = pipeline.view("orders", {"id": "int", "customer": "int", "status": "string", "total": "int"})
        pipeline.definition(
            "by_customer",
            f"select _row_key, id, customer, total from {{{{ rows('{orders}') }}}} where status <> 'archived'",
            bucket_by=["customer"],
            object_type="order",  # By default the definition's name, which differs for each source.
            object_id="id",
            evaluation="incremental",
        )
        pipeline.definition(
            "sums",
            f"select customer, sum(total) as total from {{{{ ref('{orders}') }}}} group by customer",
            bucket_by=[],
            object_type="sum",
            object_id="customer",
            unique_key=["customer"],
        )
    jobs = [PostgresJobs(lake, pipeline.source, settings) for pipeline in replicas]
    for job in jobs:
        job.open()
    many_runs, two_runs, one_run = jobs
    many_runs.settle()
    for number in range(RUNS):
        database.execute(change(draw))
        many_runs.stream()
        if number == RUNS // 2:
            two_runs.settle()
        if number < RUNS - 1:
            modelled.model()
    two_runs.settle()
    one_run.settle()
    modelled.model()
    for job in jobs:
        job.close()
    first, *others = [outcome(pipeline) for pipeline in replicas]
    assert first["runs"] == [(RUNS,)]
    # The first run saw the start position of each slot, and no events.
    assert [other["runs"] for other in others] == [[(1 + 2,)], [(1 + 1,)]]
    for other in others:
        for kind in first.keys() - {"runs"}:
            assert other[kind] == first[kind], kind


def outcome(pipeline: SourcePipeline) -> dict[str, list[tuple[object, ...]]]:
    name = pipeline.source.name
    of_source = f"where source = '{name}'"
    rows = "object_id, row_key, _checksum"
    return {
        "runs": pipeline.rows(f"select count(*) from core.checkpoints {of_source}"),
        "events": pipeline.rows(
            "select rank() over (order by seq), commit_lsn, change_lsn, commit_index, op, table_name, row_key, "
            f"old_row_key, columns from core.events {of_source}"
        ),
        "rows": pipeline.rows(
            f"select table_name, row_key, columns, multiplicity from core.row_state {of_source} and not deleted"
        ),
        "by_customer": pipeline.rows(f"select customer, {rows} from buckets.by_customer_{name}"),
        "sums": pipeline.rows(f"select {rows} from buckets.sums_{name}"),
    }
