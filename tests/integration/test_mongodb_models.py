"""Buckets over MongoDB and Postgres, built by the real dbt project, equal to the sources."""

from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from bson import Binary

from ingest.codegen.view_trial import ViewTrial
from ingest.commands.codegen import Codegen
from ingest.commands.verify import verify_tables
from ingest.config.job_settings import JobSettings
from ingest.config.sources_file import MongoSource, PostgresSource
from ingest.lake import Lake
from tests.conftest import Database
from tests.harness.mongodb_jobs import Client
from tests.harness.pipeline import SourcePipeline, sort_rows


@pytest.fixture
def pipeline(
    lake: Lake,
    source: PostgresSource,
    mongo_source: MongoSource,
    settings: JobSettings,
    database: Database,
    tmp_path: Path,
) -> SourcePipeline:
    database.execute("create table customers (id int primary key, name text, credit numeric(10,2))")
    return SourcePipeline(lake, source, settings, tmp_path, mongo_source)


def test_definitions_over_a_table_a_collection_and_both_equal_the_sources(
    pipeline: SourcePipeline, database: Database, mongo: Client, mongo_source: MongoSource, settings: JobSettings
) -> None:
    shop = mongo[mongo_source.name]
    placed = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=timezone.utc)
    shop.orders.insert_many(
        [{"_id": n, "customer": {"id": n % 3}, "total": n * 0.5, "placed": placed, "open": True} for n in range(20)]
    )
    shop.files.insert_many(
        [
            {"_id": 0, "ref": Binary(UUID(int=5).bytes, 4), "data": Binary(b"")},
            {"_id": 1, "ref": Binary(UUID(int=5).bytes, 4), "data": Binary(b"\x00\xff")},
        ]
    )
    database.execute("insert into customers select n, 'c' || n, n * 1.1 from generate_series(0, 3) n")
    customers = pipeline.view("customers", {"id": "int", "name": "string", "credit": "decimal(10,2)"})
    Codegen(ViewTrial(lambda: pipeline.spark).try_view, pipeline.folder / "models/staging").write(
        mongo_source, settings
    )
    # A field that codegen has not seen, with a name that no folder can have.
    shop["漢" * 40].insert_one({"_id": 0})
    shop.files.insert_one({"_id": 2, "ref": Binary(UUID(int=5).bytes, 3), "data": "text"})
    # A document that looks like a binary value but is none.
    shop.files.insert_one({"_id": 3, "data": {"$binary": {"base64": "a", "subType": "00"}}})
    orders = f"stg_{mongo_source.name}__orders"
    by_customer = pipeline.definition(
        "by_customer",
        f"select _row_key, customer_id, _id, total, placed, open from {{{{ rows('{orders}') }}}} where open",
        bucket_by=["customer_id"],
        object_id="_id",
        evaluation="incremental",
    )
    totals = pipeline.definition(
        "totals",
        f"select c.id, c.name, sum(o.total) as total, count(o._id) as orders from {{{{ ref('{customers}') }}}} c "
        f"left join {{{{ ref('{orders}') }}}} o on c.id = o.customer_id group by c.id, c.name",
        bucket_by=[],
        object_id="id",
        unique_key=["id"],
    )

    def expected() -> tuple[list[Any], list[Any]]:
        documents = list(shop.orders.find())
        rows = [
            (f'{by_customer}["{o["customer"]["id"]}"]', o["_id"], o["total"], o["open"])
            for o in documents
            if o.get("open")
        ]
        sums = [
            (name, sum(o["total"] for o in of_customer) if of_customer else None, len(of_customer))
            for number, name in database.execute("select id, name from customers")
            for of_customer in [[o for o in documents if o["customer"]["id"] == number]]
        ]
        return sort_rows(rows), sort_rows(sums)

    def assert_equal() -> None:
        rows, sums = expected()
        assert pipeline.bucket(by_customer, "_id, total, open") == rows
        assert pipeline.rows(f"select name, total, orders from buckets.{totals}") == sums
        for definition in (by_customer, totals):
            assert pipeline.replayed(definition) == pipeline.logged_rows(definition)

    pipeline.sync()
    assert_equal()
    (moment,) = pipeline.rows(f"select distinct placed from buckets.{by_customer}")
    assert moment[0].replace(tzinfo=timezone.utc) == placed
    files = pipeline.rows(f"select _id, ref, data from staging.stg_{mongo_source.name}__files order by _id")
    assert files == [(0, str(UUID(int=5)), b""), (1, str(UUID(int=5)), b"\x00\xff"), (2, None, None), (3, None, None)]
    with mongo.start_session() as session, session.start_transaction():
        shop.orders.update_one({"_id": 1}, {"$set": {"customer.id": 3}}, session=session)
        shop.orders.update_one({"_id": 2}, {"$set": {"open": False}}, session=session)
        shop.orders.delete_one({"_id": 3}, session=session)
        new = {"_id": 99, "customer": {"id": 0}, "total": 1.25, "placed": placed, "open": True}
        shop.orders.insert_one(new, session=session)
    database.execute("update customers set name = 'renamed', credit = 5 where id = 1")
    database.execute("delete from customers where id = 2")
    pipeline.sync()
    assert_equal()
    checkpoints = pipeline.rows("select distinct source from core.checkpoints")
    assert {(pipeline.source.name,), (mongo_source.name,)} <= set(checkpoints)
    assert pipeline.rows(f"select credit from staging.{customers} where id = 1") == [(Decimal("5.00"),)]


def test_verify_compares_the_lake_with_the_deployment(
    pipeline: SourcePipeline, mongo: Client, mongo_source: MongoSource
) -> None:
    shop = mongo[mongo_source.name]
    shop.a.insert_many([{"_id": n, "v": [n, {"x": None}]} for n in range(50)])
    shop.a.update_one({"_id": 7}, {"$set": {"v": 8}})
    pipeline.sync()
    with pipeline.jobs().running():
        (verdict,) = verify_tables(pipeline.lake, pipeline.settings, 60, source=mongo_source.name)
    assert verdict.is_equal
    assert verdict.rows == 50


def test_a_dropped_collection_is_removed_and_its_successor_is_added(
    pipeline: SourcePipeline, mongo: Client, mongo_source: MongoSource, settings: JobSettings
) -> None:
    shop = mongo[mongo_source.name]
    shop.a.insert_many([{"_id": n, "v": n} for n in range(5)])
    Codegen(ViewTrial(lambda: pipeline.spark).try_view, pipeline.folder / "models/staging").write(
        mongo_source, settings
    )
    every = pipeline.definition(
        "every",
        f"select _row_key, _id, v from {{{{ rows('stg_{mongo_source.name}__a') }}}}",
        bucket_by=[],
        object_id="_id",
        evaluation="incremental",
    )
    pipeline.sync()
    assert len(pipeline.bucket(every, "v")) == 5
    shop.a.drop()
    shop.a.insert_one({"_id": 1, "v": 100})
    pipeline.sync()
    assert pipeline.rows(f"select v from buckets.{every}") == [(100,)]
    assert pipeline.replayed(every) == pipeline.logged_rows(every)
