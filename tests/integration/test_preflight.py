"""`tidemark check` on real servers: what it finds, all at once, and that it changes nothing."""

import contextlib
import json
import re
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from pydantic import SecretStr

from ingest.codegen.staging_record import Record
from ingest.common.errors import Failure
from ingest.common.findings import Finding
from ingest.config.job_settings import JobSettings
from ingest.config.sources_file import PostgresSource
from ingest.devservers.embedded_servers import PostgresServer
from ingest.lake import Lake
from ingest.sources.postgres import postgres_connection, table_views
from ingest.sources.postgres.catalog import catalog_tables, publications
from ingest.sources.postgres.checks.postgres_checks import check
from ingest.sources.postgres.postgres_connection import connect
from tests.conftest import Database
from tests.harness.postgres_jobs import PostgresJobs

NewSource = Callable[..., PostgresSource]


def of_level(level: str, findings: list[Finding]) -> list[str]:
    return [str(finding) for finding in findings if finding.level == level]


def matching(findings: list[Finding], *parts: str) -> list[Finding]:
    return [f for f in findings if all(part in str(f) for part in parts)]


@pytest.mark.both_versions
def test_a_ready_source_has_no_errors_and_check_creates_nothing(
    database: Database, source: PostgresSource, settings: JobSettings
) -> None:
    database.execute("create table a (id int primary key); create table b (id int primary key)")
    database.execute("create view v as select 1")
    findings = check(source, settings)
    assert {finding.level for finding in findings} == {"ok"}
    assert matching(findings, "2 of 2 tables can be read")
    assert matching(findings, "1 view left out: public.v")
    assert matching(findings, "the publication will be created")
    assert matching(findings, "the slot will be created")
    # The lake has a position in the slot, which is missing.
    assert matching(check(source, settings, used_slots={source.slot}), "does not exist, so changes are lost")
    assert database.execute("select from pg_publication") == []
    mine = "select from pg_replication_slots where database = current_database()"
    assert database.execute(mine) == []


def test_a_missing_database_is_one_error(database: Database, new_source: NewSource, settings: JobSettings) -> None:
    (finding,) = check(new_source(dsn=make_conninfo(database.dsn, dbname="nowhere")), settings)
    assert finding.level == "error"
    assert "does not exist" in finding.what
    assert finding.fix == "Check the names in the DSN"


def test_a_locked_table_is_named(
    database: Database, source: PostgresSource, settings: JobSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.execute("create table a (id int primary key)")
    monkeypatch.setattr(postgres_connection, "LOCK_TIMEOUT", "50ms")
    with psycopg.connect(database.dsn) as other:
        other.execute("lock table a in access exclusive mode")
        (finding,) = check(source, settings)
        assert "tables are locked: public.a (by process" in finding.what
        with pytest.raises(Failure, match="tables are locked: public.a"):
            table_views.views(source, settings, Record())


def test_a_name_that_is_not_utf8_is_reported(database: Database, new_source: NewSource, settings: JobSettings) -> None:
    name = f"{database.name}_ascii"
    database.execute(f"create database {name} encoding 'SQL_ASCII' lc_collate 'C' lc_ctype 'C' template template0")
    dsn = make_conninfo(database.dsn, dbname=name)
    with psycopg.connect(dsn, client_encoding="SQL_ASCII") as connection:
        connection.execute(b'create schema other; create table other."caf\xe9" (id int primary key)')
    try:
        (finding,) = check(new_source(dsn=dsn), settings)
        assert matching([finding], f"a name is not valid UTF-8: the catalog of database {name}")
    finally:
        database.execute(f"drop database {name}")


def test_every_missing_right_of_a_role_is_reported(
    database: Database, new_source: NewSource, settings: JobSettings, role: str
) -> None:
    database.execute("create table a (id int primary key); create table b (id int primary key)")
    database.execute(f"grant select on a to {role}")
    findings = check(new_source(dsn=make_conninfo(database.dsn, user=role)), settings)
    errors = [finding for finding in findings if finding.level == "error"]
    assert len(errors) == 2
    assert matching(errors, f"ALTER ROLE {role} REPLICATION")
    assert matching(findings, "no permission to read it", "table public.b", "GRANT SELECT")
    assert matching(
        errors,
        "the role can't create it: it does not own public.a",
        'FOR TABLE ONLY "public"."a"',
    )


def test_a_least_privileged_role_with_an_existing_publication_is_enough(
    database: Database, new_source: NewSource, settings: JobSettings, role: str
) -> None:
    database.execute("create table a (id int primary key); create publication given for table a")
    database.execute(f"alter role {role} replication; grant select on a to {role}")
    dsn = make_conninfo(database.dsn, user=role)
    findings = check(new_source(dsn=dsn, publication="given"), settings)
    assert of_level("error", findings) == []
    assert matching(findings, "1 tables are published", "publication given")


def test_a_least_privileged_role_streams_and_snapshots(
    database: Database, new_source: NewSource, lake: Lake, settings: JobSettings, role: str
) -> None:
    database.execute("create table a (id int primary key, v text); insert into a values (1, 'one'), (2, 'two')")
    database.execute("create publication given for table a")
    database.execute(f"alter role {role} replication; grant select on a to {role}")
    jobs = PostgresJobs(lake, new_source(dsn=make_conninfo(database.dsn, user=role), publication="given"), settings)
    jobs.open()
    database.execute("update a set v = 'zwei' where id = 2; delete from a where id = 1; insert into a values (3, null)")
    jobs.settle()
    jobs.assert_equal("public.a")
    jobs.close()


def test_tables_that_can_not_be_replicated_are_reported(
    database: Database, source: PostgresSource, settings: JobSettings
) -> None:
    database.execute("""
        create table good (id int primary key);
        create table no_key (id int);
        create table nothing (id int primary key);
        alter table nothing replica identity nothing;
        create unlogged table unlogged (id int primary key);
        create table whole (id int); alter table whole replica identity full
    """)
    findings = check(source, settings)
    warnings = [finding for finding in findings if finding.level == "warning"]
    assert {warning.where.rpartition(".")[2] for warning in warnings} == {"no_key", "nothing", "unlogged"}
    assert of_level("error", findings) == []
    (no_key,) = matching(warnings, "public.no_key")
    assert "it has no replica identity" in no_key.what
    assert 'ALTER TABLE "public"."no_key" REPLICA IDENTITY FULL; or exclude it' in no_key.fix
    assert no_key.fix.endswith('sources.yml: "!public.no_key"')
    assert matching(findings, "2 of 5 tables can be read")


def test_row_level_security_is_an_error_unless_the_role_bypasses_it(
    database: Database, new_source: NewSource, settings: JobSettings, role: str
) -> None:
    database.execute("create table a (id int primary key); alter table a enable row level security")
    database.execute(f"create publication given for table a; grant select on a to {role}")
    database.execute(f"alter role {role} replication")
    source = new_source(dsn=make_conninfo(database.dsn, user=role), publication="given", tables=("public.a",))
    (error,) = of_level("error", check(source, settings))
    assert error.startswith("row-level security hides rows from the role: ")
    database.execute(f"alter role {role} bypassrls")
    assert of_level("error", check(source, settings)) == []


def test_patterns_that_select_no_table_are_reported(
    database: Database, new_source: NewSource, settings: JobSettings
) -> None:
    database.execute("""
        create table good (id int primary key);
        create view v as select 1;
        create table parts (id int primary key) partition by range (id);
        create table parts_1 partition of parts for values from (0) to (10)
    """)
    patterns = ("public.good", "public.Good", "public.v", "public.parts_1")
    warnings = of_level("warning", check(new_source(tables=patterns), settings))
    assert len(warnings) == 3
    assert warnings[0].startswith("it selects no table: ")
    assert "pattern 'public.Good'" in warnings[0]
    assert "A view has no changes in the log" in warnings[1]
    assert "Select the partitioned table" in warnings[2]
    (error,) = of_level("error", check(new_source(tables=("other.*",)), settings))
    assert error.startswith("no table is selected by other.*: ")


@pytest.mark.both_versions
def test_every_fault_of_a_publication_is_reported(
    database: Database, new_source: NewSource, settings: JobSettings
) -> None:
    database.execute("""
        create table a (id int primary key, v text);
        create table b (id int primary key, v text);
        create table c (id int primary key);
        create publication given for table a where (id > 7), b (id)
            with (publish = 'insert, update', publish_via_partition_root = true)
    """)
    findings = check(new_source(publication="given"), settings)
    errors, warnings = of_level("error", findings), of_level("warning", findings)
    assert len(errors) == 2
    assert errors[0].startswith("the publication publishes partitions under their root")
    assert errors[1].startswith("the publication does not publish every delete and truncate: ")
    assert warnings[2].startswith("not published: public.c: ")
    assert 'ALTER PUBLICATION "given" ADD TABLE ONLY "public"."c"' in warnings[2]
    assert "a row filter applies: (id > 7)" in warnings[0]
    assert "columns are not published: v" in warnings[1]


@pytest.mark.both_versions
def test_columns_that_cannot_be_published_exclude_their_tables(
    database: Database,
    new_source: NewSource,
    settings: JobSettings,
    lake: Lake,
    caplog: pytest.LogCaptureFixture,
) -> None:
    database.execute("""
        create table a (id int primary key, v text);
        create table b (id int primary key);
        insert into a values (1, 'x'); insert into b values (1);
        create publication given for table a (v), b
    """)
    expected = ["its column list leaves out id, which is of its key"]
    if database.version >= 18:
        database.execute("""
            create table c (id int primary key, twice int generated always as (id * 2) stored);
            insert into c values (1);
            alter publication given set (publish_generated_columns = stored);
            alter publication given add table c
        """)
        expected.append("generated columns are published, and are not replicated: twice")
    source = new_source(publication="given")
    needed = {"public.a", "public.b", "public.c"}
    errors = of_level("error", check(source, settings, needed))
    assert [error.partition(": source")[0] for error in errors] == expected
    jobs = PostgresJobs(lake, source, settings)
    jobs.settle()
    # Their changes, too.
    database.execute("insert into a values (2, 'y'); insert into b values (2)")
    if database.version >= 18:
        database.execute("insert into c values (2)")
    jobs.stream()
    assert [(row.table_name, row.state) for row in lake.tables.read(source.name).values()] == [("public.b", "done")]
    jobs.assert_equal("public.b")
    jobs.close()
    assert all(why in caplog.text for why in expected)


def test_a_definition_over_a_view_is_an_error(database: Database, new_source: NewSource, settings: JobSettings) -> None:
    database.execute("""
        create table a (id int primary key);
        create view was_table as select * from a;
        create view other as select * from a
    """)
    findings = check(new_source(), settings, {"public.a", "public.was_table"})
    (error,) = of_level("error", findings)
    assert error.startswith("a definition reads it, and a view has no changes in the log: source ")
    assert matching(findings, "1 view left out: public.other")


def test_full_identity_is_not_advised_where_a_generated_column_forbids_it(
    database: Database, new_source: NewSource, settings: JobSettings
) -> None:
    database.execute("create table nk (a int, b int generated always as (a + 1) stored)")
    (finding,) = [each for each in check(new_source(), settings) if "no replica identity" in each.what]
    assert "add a primary key" in finding.fix.lower()
    assert ("REPLICA IDENTITY FULL" in finding.fix.partition("; or exclude")[0]) == (database.version < 18)


def test_the_advised_publication_leaves_out_inheriting_tables(
    database: Database, new_source: NewSource, settings: JobSettings, role: str
) -> None:
    database.execute("create table parent (id int primary key, n int); create table child () inherits (parent)")
    database.execute(f"alter role {role} replication; grant select on parent, child to {role}")
    findings = check(new_source(dsn=make_conninfo(database.dsn, user=role)), settings)
    (fix,) = [finding.fix for finding in findings if "CREATE PUBLICATION" in finding.fix]
    database.execute(fix.partition(": ")[2].rstrip("."))
    database.execute("insert into child values (1, 1); update child set n = 2")


def test_a_table_in_the_publications_of_two_writers_is_an_error(
    database: Database, new_source: NewSource, settings: JobSettings
) -> None:
    database.execute("""
        create table a (id int primary key);
        create table b (id int primary key);
        create publication given for table a;
        create publication given_2 for table a, b
    """)
    findings = check(new_source(publication="given", writers=2), settings)
    (error,) = of_level("error", findings)
    assert error.startswith("it is in several of the source's publications: given, given_2: ")


@pytest.mark.both_versions
def test_unusable_slots_are_errors_and_a_slot_in_use_is_not(
    database: Database, source: PostgresSource, settings: JobSettings
) -> None:
    database.execute("create table a (id int primary key)")
    database.execute(f"select pg_create_physical_replication_slot('{source.slot}')")
    (error,) = of_level("error", check(source, settings))
    assert error.startswith("the replication slot uses physical replication, not pgoutput")
    database.drop_slot(source.slot)

    database.execute(f"select pg_create_logical_replication_slot('{source.slot}', 'pgoutput')")
    assert matching(check(source, settings), "the slot exists and is not in use")
    reading = psycopg.connect(make_conninfo(database.dsn, replication="database"), autocommit=True)
    with contextlib.closing(reading) as reader:
        start = f"START_REPLICATION SLOT {source.slot} LOGICAL 0/0 "
        options = "(proto_version '1', publication_names 'x')"
        reader.pgconn.exec_((start + options).encode())
        findings = check(source, settings)
    assert of_level("error", findings) == []
    assert matching(findings, "the slot is being read by process")


def test_every_missing_setting_of_a_server_is_reported(tmp_path: Path, settings: JobSettings) -> None:
    server = PostgresServer(
        tmp_path / "server",
        settings={
            "wal_level": "replica",
            "max_replication_slots": "1",
            "max_wal_senders": "1",
            "wal_sender_timeout": "500ms",
            "fsync": "off",
        },
    )
    try:
        server.start()
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            connection.execute("create table a (id int primary key)")
            connection.execute("select pg_create_physical_replication_slot('other')")
        source = PostgresSource(name="shop", dsn=SecretStr(server.dsn()), tables=("public.*",))
        findings = check(source, settings)
    finally:
        server.remove()
    errors, warnings = of_level("error", findings), of_level("warning", findings)
    assert len(errors) == 2
    assert errors[0].startswith("wal_level is replica, so changes can't be read: ")
    assert "Set wal_level = logical" in errors[0]
    assert errors[1].startswith("1 of 1 max_replication_slots are in use; writers need 1 more, ")
    assert len(warnings) == 2
    assert warnings[0].startswith("wal_sender_timeout is 500 ms")
    assert "max_wal_senders are in use" in warnings[1]


def test_advice_quotes_unusual_names(database: Database, new_source: NewSource, settings: JobSettings) -> None:
    database.execute(
        sql.SQL("create table {} (id int primary key); create publication given").format(sql.Identifier('we"ird'))
    )
    source = new_source(publication="given")
    (error,) = [f for f in check(source, settings) if f.level == "error"]
    database.execute(error.fix.partition(": ")[2])
    assert of_level("error", check(source, settings)) == []


@pytest.mark.both_versions
def test_a_table_with_a_generated_column_is_published_without_it(
    database: Database, new_source: NewSource, settings: JobSettings
) -> None:
    database.execute("""
        create table p (id int primary key, price numeric, taxed numeric generated always as (price * 1.2) stored);
        create publication given for table p
    """)
    source = new_source(publication="given")
    assert {finding.level for finding in check(source, settings)} == {"ok"}
    with connect(database.dsn) as connection:
        (table,) = catalog_tables.read_tables(connection, source.selects)
        published = publications.read(connection, {1: "given"})
    assert publications.covers(published, table)
    assert published[table.oid].columns == ("id", "price")


_PARTS = """
    create table parts (id int primary key) partition by range (id);
    create table parts_1 partition of parts for values from (0) to (10);
"""
# What is wrong by set-up, as a role that may read all that is granted to it, and what is said of it.
_ADVISED = {
    "a partition that may not be read": (
        _PARTS + "grant select on parts to {role}; create publication given for table parts",
        'no permission to read its partition "public"."parts_1"',
    ),
    "names to be quoted": (
        (
            'create schema "S "; create table "S "."we""ird" (id int primary key); '
            'create publication given for table "S "."we""ird"'
        ),
        "no permission to read it",
    ),
    "not published": (
        "create table a (id int primary key); grant select on a to {role}; create publication given",
        "not published: public.a",
    ),
    "no publication": (
        "create table a (id int primary key); grant select on a to {role}",
        "the publication does not exist",
    ),
    "all tables under their root": (
        _PARTS + "grant select on parts, parts_1 to {role}; "
        "create publication given for all tables with (publish_via_partition_root)",
        "the publication publishes partitions under their root",
    ),
    "a table under its root": (
        _PARTS + "grant select on parts, parts_1 to {role}; "
        "create publication given for table parts with (publish_via_partition_root)",
        "the publication publishes partitions under their root",
    ),
    "not every operation": (
        (
            "create table a (id int primary key); grant select on a to {role}; "
            "create publication given for table a with (publish = 'insert')"
        ),
        "the publication does not publish every",
    ),
    "unlogged": (
        (
            "create unlogged table a (id int primary key); create table b (id int primary key); "
            "grant select on a, b to {role}; create publication given for table b"
        ),
        "it is unlogged",
    ),
    "partitions without an identity": (
        (
            "create table parts (id int) partition by range (id);"
            "create table parts_1 partition of parts for values from (0) to (10);"
            "create table parts_2 partition of parts for values from (10) to (20);"
            "grant select on parts, parts_1, parts_2 to {role}; create publication given for table parts"
        ),
        "it has no replica identity",
    ),
    "hidden rows": (
        (
            "create table a (id int primary key); alter table a enable row level security; "
            "grant select on a to {role}; create publication given for table a"
        ),
        "row-level security hides rows",
    ),
    "no replication": (
        (
            "create table a (id int primary key); grant select on a to {role}; "
            "create publication given for table a; alter role {role} noreplication"
        ),
        "permission denied to start WAL sender",
    ),
}
_STATEMENT = re.compile(r"\b(?:GRANT|ALTER|CREATE) .+?(?=; |, or |$)")


@pytest.mark.parametrize("case", _ADVISED)
def test_the_advice_of_a_finding_ends_it(
    database: Database, new_source: NewSource, settings: JobSettings, role: str, case: str
) -> None:
    setup, expected = _ADVISED[case]
    database.execute(f"alter role {role} replication; " + setup.replace("{role}", role))
    source = new_source(dsn=make_conninfo(database.dsn, user=role), publication="given", tables=("*.*",))
    found = [f for f in check(source, settings) if f.level != "ok" and expected in f.what]
    assert len(found) == 1
    others = [f for f in check(source, settings) if f.level != "ok" and "ADD TABLE" in f.fix]
    assert others == [] or "not published" in expected
    statements = _STATEMENT.findall(found[0].fix)
    assert statements
    for statement in statements:
        database.execute(statement)
    assert [f for f in check(source, settings) if expected in f.what] == []


def test_a_required_table_is_an_error_and_an_excluded_one_is_silent(
    database: Database, new_source: NewSource, settings: JobSettings
) -> None:
    database.execute("create table good (id int primary key); create table bad (id int)")
    assert of_level("error", check(new_source(), settings)) == []
    for findings in (
        check(new_source(), settings, {"public.bad"}),
        check(new_source(tables=("public.*", "public.bad")), settings),
    ):
        (error,) = of_level("error", findings)
        assert "public.bad" in error
        assert "exclude" not in error
    (warning,) = [f for f in check(new_source(), settings) if f.level == "warning"]
    pattern = json.loads(warning.fix.rpartition("sources.yml: ")[2])
    excluded = check(new_source(tables=(pattern, "public.*")), settings)
    assert {finding.level for finding in excluded} == {"ok"}
    assert matching(excluded, "1 of 1 tables can be read")
    (none,) = of_level("error", check(new_source(tables=("*.bad",)), settings))
    assert none.startswith("none of the selected tables can be replicated")
