"""The dbt package in a project of another name, with models, macros and schemas of its own: these run as before."""

import json
import shutil
from pathlib import Path

import pytest
from dbt.cli.main import dbtRunner
from pydantic import SecretStr

from ingest.commands.op_log import read_ops
from ingest.config.job_settings import JobSettings
from ingest.config.sources_file import PostgresSource, Settings
from ingest.lake import Lake
from ingest.new_project.new_project import add_package
from ingest.pipeline.ingest_jobs import Jobs
from ingest.pipeline.run_loop import Pipeline
from ingest.project.dbt_project import QUIET_OPTIONS, Project, dbt_options
from ingest.project.definition_plan import make_plan, prune_definitions
from tests.conftest import Database
from tests.harness.project_copy import ROOT

FILES = {
    "dbt_project.yml": """
name: acme
profile: warehouse
flags: {send_anonymous_usage_stats: false}
models: {acme: {+file_format: iceberg, marts: {+materialized: table, +schema: marts}}}
seeds: {acme: {+file_format: iceberg}}
snapshots: {acme: {+file_format: iceberg}}
""",
    "macros/generate_schema_name.sql": """
{% macro generate_schema_name(custom_schema_name, node) %}acme_{{ custom_schema_name or target.schema }}{% endmacro %}
""",
    "seeds/countries.csv": "code,name\nnl,Netherlands\nbe,Belgium\n",
    "models/marts/country_names.sql": "select upper(code) as code, name from {{ ref('countries') }}",
    "models/marts/merged_countries.sql": """
{{ config(materialized='incremental', incremental_strategy='merge', unique_key='code') }}
select code, name, {{ is_incremental() }} as is_merged from {{ ref('countries') }}
""",
    # A model of the package has the same name.
    "models/events.sql": "select code, length(name) as letters from {{ ref('countries') }}",
    "snapshots/countries_history.sql": """
{% snapshot countries_history %}
{{ config(unique_key='code', strategy='check', check_cols=['name'], target_schema='history_of_acme') }}
select * from {{ ref('countries') }}
{% endsnapshot %}
""",
    "models/acme.yml": """
models:
  - name: country_names
    columns: [{name: code, data_tests: [unique]}]
exposures:
  - {name: dashboard, type: dashboard, owner: {name: acme}, depends_on: [ref('country_names'), ref('events')]}
""",
}
ADDED = {
    "models/lake/stg_shop__orders.sql": """
{{ config(materialized='view', meta={'source': 'shop', 'table': 'public.orders'}) }}
select
    row_key as _row_key, checkpoint_id as _checkpoint_id,
    cast(columns['id'] as int) as id, columns['country'] as country
from {{ ref('row_state') }}
where source = 'shop' and table_name = 'public.orders' and not deleted
""",
    "models/lake/country_orders.sql": """
{{ config(
    materialized='bucket', schema='lake',
    meta={'bucket_by': ['country'], 'object_id': 'id', 'evaluation': 'incremental'},
) }}
select _row_key, id, country from {{ tidemark.rows('stg_shop__orders') }}
""",
    "models/marts/orders_by_country.sql": """
select country, count(*) as orders from {{ ref('country_orders') }} group by country
""",
}
OWN = {"countries", "country_names", "merged_countries", "events", "countries_history"}


@pytest.fixture
def acme(tmp_path: Path) -> Path:
    """A dbt project that does not know Tidemark, on the same Spark and catalog."""
    folder = tmp_path / "acme"
    write(folder, FILES)
    profiles = (ROOT / "profiles/profiles.yml").read_text()
    profiles = profiles.replace("\ntidemark:", "\nwarehouse:")
    (folder / "profiles.yml").write_text(profiles.replace("  outputs:\n", f"  outputs:\n{plain_target(profiles)}"))
    return folder


def plain_target(profiles: str) -> str:
    """The target `local` as one of dbt-spark's, named `plain`."""
    local = profiles.partition("    local:\n")[2].partition("\n\n")[0]
    return "    plain:\n" + local.replace("type: tidemark", "type: spark") + "\n"


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def run_dbt(folder: Path, *arguments: str) -> bool:
    return bool(dbtRunner().invoke([*QUIET_OPTIONS, *arguments, *dbt_options(None, folder)]).success)


def relations(project: Project) -> dict[str, str]:
    nodes = project.manifest.nodes.values()
    return {node.name: node.relation_name for node in nodes if node.package_name == "acme" and node.relation_name}


def statuses(project: Project, *command: str) -> dict[str, str]:
    return {outcome.name: outcome.status for outcome in project.invoke(*command)}


def test_models_of_a_project_run_as_before_and_tidemarks_beside_them(
    lake: Lake, settings: JobSettings, acme: Path, database: Database
) -> None:
    spark = lake.spark

    def snapshots_of(table: str) -> int:
        return spark.sql(f"select * from {table}.snapshots").count()

    before = Project(folder=acme)
    own = statuses(before, "build")
    assert set(own) >= OWN
    shutil.copytree(acme / "target", acme / "before")

    list(add_package(acme))
    (acme / "packages.yml").write_text("packages:\n  - local: packages/tidemark\n")
    write(acme, ADDED)
    with_package = Project(folder=acme)
    places = relations(with_package)
    assert relations(before).items() <= places.items()
    assert places["country_orders"] == "acme_lake.country_orders"
    assert places["country_names"] == "acme_marts.country_names"
    modified = dbtRunner(manifest=with_package.manifest).invoke(
        ["--quiet", "ls", "--select", "state:modified", "--state", str(acme / "before"), *dbt_options(None, acme)]
    )
    assert isinstance(modified.result, list)
    assert not {name.rpartition(".")[2] for name in modified.result if name.startswith("acme.")} & OWN
    # Neither does a target of dbt-spark's own type stop them, nor a lake without any row of Tidemark's.
    own_nodes = ["--exclude", "package:tidemark+"]
    assert run_dbt(acme, "build", *own_nodes, "--target", "plain")
    assert not run_dbt(acme, "run", "--select", "checkpoints", "--target", "plain")
    assert own.items() <= statuses(with_package, "build", *own_nodes).items()

    database.execute("create table orders (id int primary key, country text); insert into orders values (1, 'nl')")
    source = PostgresSource(
        name="shop", dsn=SecretStr(database.dsn), tables=("public.*",), slot="acme", publication="acme"
    )
    pipeline = Pipeline(
        lake,
        Settings(sources={"shop": source}, settings=settings),
        with_package,
        then_command=["build", "--select", "orders_by_country"],
    )
    built = snapshots_of("acme_marts.country_names")
    with pipeline.running():
        pipeline.loop(until_caught_up=True)
    assert [tuple(row) for row in spark.table("acme_marts.orders_by_country").collect()] == [("nl", 1)]
    bucket = 'country_orders["nl"]'
    assert [json.loads(op)["op"] for op in read_ops(spark, "country_orders", bucket, 0)] == ["PUT"]
    assert snapshots_of("acme_marts.country_names") == built, "a model that is not Tidemark's was built by a run"

    database.execute("insert into orders values (2, 'be')")
    with Jobs(lake, Settings(sources={"shop": source}, settings=settings)).running() as jobs:
        jobs.wait(until_caught_up=True)
    everything = statuses(with_package, "build")
    assert own.items() <= everything.items()
    merged = spark.table("acme_marts.merged_countries").collect()
    assert sorted((row.code, row.is_merged) for row in merged) == [("be", True), ("nl", True)]
    assert {"country_orders", "row_state", "orders_by_country"} <= set(everything)
    assert spark.table("acme_marts.orders_by_country").count() == 2
    assert {step.definition: step.state for step in make_plan(spark, folder=acme)} == {"country_orders": "unchanged"}

    # What dbt users do next.
    (acme / "models/marts/orders_by_country.sql").write_text("select no_such_column from {{ ref('country_orders') }}")
    assert not run_dbt(acme, "build", "--select", "orders_by_country+")
    (acme / "models/marts/orders_by_country.sql").write_text(ADDED["models/marts/orders_by_country.sql"])
    assert run_dbt(acme, "retry")
    deferred = ["--defer", "--favor-state", "--state", str(acme / "before")]
    assert run_dbt(acme, "run", "--select", "country_names", *deferred)
    assert run_dbt(acme, "run", "--select", "acme.events", "--empty")
    assert not run_dbt(acme, "run", "--select", "country_orders", "--empty")
    assert run_dbt(acme, "docs", "generate")

    (acme / "models/lake/country_orders.sql").unlink()
    (acme / "models/marts/orders_by_country.sql").unlink()
    assert prune_definitions(spark, folder=acme) == ["country_orders"]
    assert not spark.catalog.tableExists("acme_lake.country_orders")
