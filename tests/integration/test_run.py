"""The warm loop as a whole: pgbench's balances at every checkpoint, and `kill -9` of the process anywhere."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ingest.config import PostgresSource
from ingest.embedded import embedded_postgres
from ingest.lake import Lake
from ingest.run import ModelRun
from ingest.settings import JobSettings
from tests.conftest import Database
from tests.integration.replica import ROOT, Replica

TABLES = {"branches": ("bid", "bbalance"), "tellers": ("tid", "tbalance"), "accounts": ("aid", "abalance")}


@pytest.fixture
def replica(lake: Lake, source: PostgresSource, settings: JobSettings, tmp_path: Path) -> Replica:
    return Replica(lake, source, settings, tmp_path)


def _balances(replica: Replica) -> dict[str, int]:
    """What branches, tellers, accounts and the history's deltas add up to, at the published checkpoint."""
    sums = " union all ".join(
        f"select '{table}', sum(cast(columns['{column}'] as bigint) * copies) from core.row_state "
        f"where source = '{replica.source.name}' and table_name = 'public.pgbench_{table}' and not deleted"
        for table, column in [*((t, c[1]) for t, c in TABLES.items()), ("history", "delta")]
    )
    return {row[0]: row[1] or 0 for row in replica.spark.sql(sums).collect()}


def test_balances_agree_at_every_checkpoint(replica: Replica, database: Database) -> None:
    pgbench = str(embedded_postgres() / "pgbench")
    subprocess.run([pgbench, "-i", "-q", database.dsn], check=True, capture_output=True)
    database.execute("alter table pgbench_history replica identity full")
    view = replica.view("pgbench_tellers", {"tid": "int", "bid": "int", "tbalance": "int"})
    tellers = replica.definition(
        "tellers",
        f"select _row_key, tid, bid, tbalance from {{{{ rows('{view}') }}}}",
        bucket_by=["bid"],
        object_id="tid",
        evaluate="rows",
    )
    pipeline = replica.pipeline()
    checked: list[dict[str, int]] = []
    clients = subprocess.Popen(
        [pgbench, "-n", "-c", "4", "-R", "60", "-T", "550", database.dsn],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )

    def check(run: ModelRun) -> None:
        balances = _balances(replica)
        if not run.waiting and len(balances) == 4:
            # The tellers' definition may be ready before the accounts' snapshot is.
            ready = replica.rows(
                "select max_by(status, checkpoint_id) from core.tables "
                f"where source = '{replica.source.name}' group by table_id"
            )
            if ready == [("ready",)] * 4:
                checked.append(balances)
                assert len(set(balances.values())) == 1, balances
        if len(checked) == 4:
            pipeline.stop()

    try:
        with pipeline.running():
            pipeline.loop(check)
    finally:
        clients.terminate()
        clients.wait()
    assert checked[-1] != checked[0]
    replica.sync()
    assert len(set(_balances(replica).values())) == 1
    for table, (key, balance) in TABLES.items():
        found = replica.rows(
            f"select int(columns['{key}']), int(columns['{balance}']) from core.row_state "
            f"where source = '{replica.source.name}' and table_name = 'public.pgbench_{table}' and not deleted"
        )
        assert sorted(found) == sorted(database.execute(f"select {key}, {balance} from pgbench_{table}"))
    assert sorted(replica.bucket(tellers, "tid, tbalance")) == sorted(
        database.execute(f"""select '{tellers}["' || bid || '"]', tid, tbalance from pgbench_tellers""")
    )
    assert replica.replayed(tellers) == replica.logged_rows(tellers)


@pytest.mark.parametrize("place", ["landing", "storing", "modelling", "publishing"])
def test_killed_with_sigkill_the_next_run_goes_on(replica: Replica, database: Database, place: str) -> None:
    database.execute(
        "create table t (id int primary key, v text); insert into t select i, 'a' from generate_series(1, 9) i"
    )
    view = replica.view("t", {"id": "int", "v": "string"})
    rows = replica.definition(
        "rows", f"select _row_key, id, v from {{{{ rows('{view}') }}}}", bucket_by=[], object_id="id", evaluate="rows"
    )
    replica.sync()
    database.execute("update t set v = 'b' where id < 5; delete from t where id = 5; insert into t values (10, 'c')")
    replica.write(
        "sources.yml",
        f"sources: {{{replica.source.name}: {{postgres: {{dsn: '${{DSN}}', slot: {replica.source.slot}, "
        f"publication: {replica.source.publication}, tables: ['public.*']}}}}}}\n",
    )
    victim = subprocess.run(
        [sys.executable, "-m", "tests.integration.victim", place],
        cwd=replica.folder,
        env={**os.environ, "DSN": database.dsn, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert victim.returncode == -signal.SIGKILL, victim.stderr
    database.execute("insert into t values (11, 'd')")
    replica.sync()
    assert sorted(replica.bucket(rows, "id, v")) == sorted(database.execute(f"select '{rows}[]', id, v from t"))
    assert replica.replayed(rows) == replica.logged_rows(rows)
