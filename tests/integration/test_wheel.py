"""A wheel in an empty environment is all that a new project needs, from `tidemark init` to an edited definition."""

import json
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from tests.conftest import Database
from tests.harness.project_copy import ROOT

DEFINITION = """
{{ config(materialized='bucket', meta={'bucket_by': ['customer_id'], 'object_id': 'id', 'evaluation': 'incremental'}) }}
select _row_key, id, customer_id, status from {{ tidemark.rows('stg_shop__orders') }}
"""
TABLES = """
create table customers (id int primary key, name text); insert into customers values (42, 'Ada');
create table products (sku text primary key); insert into products values ('x');
create table orders (id int primary key, customer_id int, status text);
insert into orders values (1, 42, 'new'), (2, 42, 'archived');
"""


class Environment:
    """An environment with the wheel, beside the packages of this one, and a shell's variables in it."""

    def __init__(self, folder: Path, dsn: str) -> None:
        wheels, self._folder = folder / "wheels", folder / "environment"
        subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", wheels], cwd=ROOT, check=True)
        (wheel,) = wheels.glob("*.whl")
        venv.create(self._folder, with_pip=False)
        python = self._folder / "bin/python"
        install = ["uv", "pip", "install", "--quiet", "--offline", "--no-deps", "--python", str(python), str(wheel)]
        subprocess.run([sys.executable, "-m", *install], check=True)
        (site_packages,) = self._folder.glob("lib/*/site-packages")
        (site_packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "DBT_", "TIDEMARK_"))
        }
        self._variables = {**kept, "SHOP_DSN": dsn}

    def run(self, folder: Path, *command: str) -> str:
        """Runs a command of the environment; returns its output."""
        done = subprocess.run(
            [self._folder / "bin/python", "-c", ENTRY_POINTS[command[0]], *command[1:]],
            cwd=folder,
            env={**self._variables, "PWD": str(folder)},  # as a shell sets it: the lake is in the project
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout


ENTRY_POINTS = {
    "tidemark": "from ingest.cli.main import main; main()",
    "dbt": "from dbt.cli.main import cli; cli()",
}


@pytest.fixture
def environment(tmp_path: Path, database: Database) -> Environment:
    return Environment(tmp_path, database.dsn)


def test_a_new_project_works_with_nothing_but_the_wheel(
    environment: Environment, tmp_path: Path, database: Database
) -> None:
    database.execute(TABLES)
    environment.run(tmp_path, "tidemark", "init", "shop")
    shop = tmp_path / "shop"
    environment.run(shop, "tidemark", "check")
    environment.run(shop, "tidemark", "codegen")
    assert len(list((shop / "models/staging").glob("stg_shop__*.sql"))) == 3
    definition = shop / "models/buckets/customer_orders.sql"
    definition.write_text(DEFINITION)
    assert "shop.buckets.customer_orders" in environment.run(shop, "dbt", "--quiet", "ls").split()
    environment.run(shop, "tidemark", "run", "--until-caught-up")
    assert "PASS freshness of shop.orders" in environment.run(shop, "dbt", "source", "freshness")
    definition.write_text(f"{DEFINITION}where status <> 'archived'\n")
    environment.run(shop, "dbt", "build")
    ops = [json.loads(line) for line in environment.run(shop, "tidemark", "ops", "customer_orders", "42").splitlines()]
    assert [(op["op"], op["object_id"]) for op in ops] == [("PUT", "1"), ("PUT", "2"), ("REMOVE", "2")]
