"""Tables that are created, dropped, renamed, partitioned or can't be replicated; and values that the log omits."""

from tests.harness.alterations import ORDERS, PARTS, Alteration, Check, Outcome, Step, alter_once
from tests.harness.postgres_jobs import PostgresJobs


def _events(jobs: PostgresJobs, table: str) -> list[dict[str, object]]:
    return jobs.events(jobs.table(table).table_id)


def _has_root_name(jobs: PostgresJobs, table: str) -> None:
    events = _events(jobs, table)
    assert {event["table_name"] for event in events} == {table}
    assert len({event["partition_id"] for event in events}) == 2


def _is_partial(expected: bool) -> Check:
    def check(jobs: PostgresJobs, table: str) -> None:
        assert any(event["is_partial"] for event in _events(jobs, table)) == expected

    return check


def _has_no_generated_column(jobs: PostgresJobs, table: str) -> None:
    assert {frozenset(event["columns"]) for event in _events(jobs, table)} == {frozenset({"id", "n"})}  # type: ignore[call-overload]


def _has_literal_names(jobs: PostgresJobs, table: str) -> None:
    assert [column.name for column in jobs.table(table).columns] == ["${env:HOME}", "${spark.app.name}"]


def _excluded(name: str, created: tuple[str, ...], change: str, expected_log: str = "") -> Alteration:
    return Alteration(name, created, (Step((change,), Outcome.EXCLUDED),), expected_log, Outcome.EXCLUDED)


NAMES = (
    alter_once(
        "a table dropped and created again",
        (
            "drop table {t}; create table {t} (id int primary key, other date)",
            "insert into {t} values (1, '2026-01-01')",
        ),
        Outcome.NEW_GENERATION,
    ),
    alter_once("a table dropped", ("drop table {t}",), Outcome.ENDED),
    alter_once(
        "a table renamed to an unselected name",
        ("alter table {t} rename to hidden_{t}; update hidden_{t} set n = 0",),
        Outcome.ENDED,
    ),
    Alteration(
        "a table renamed from an unselected name",
        ("create table hidden_{t} (id int primary key); insert into hidden_{t} values (1)",),
        (
            Step(("alter table hidden_{t} rename to {t}; insert into {t} values (2)",), Outcome.EQUAL),
            Step(("insert into {t} values (3)",), Outcome.SAME),
        ),
        first_outcome=Outcome.EXCLUDED,
    ),
    Alteration(
        "a table renamed to another selected name",
        ("create table {t}_old (id int primary key); insert into {t}_old values (1)",),
        (
            Step(
                ("insert into {t}_old values (2)", "alter table {t}_old rename to {t}", "delete from {t} where id = 1"),
                Outcome.EQUAL,
            ),
            Step(("insert into {t} values (3)",), Outcome.SAME),
        ),
        first_outcome=Outcome.EXCLUDED,
    ),
    alter_once(
        "a renamed table without a key is replaced by a new table of its name",
        (
            (
                "begin; alter table {t} rename to {t}_old; alter table {t}_old drop constraint {t}_pkey;"
                "create table {t} (id int primary key, note text); insert into {t} values (3, 'new'); commit"
            ),
        ),
        Outcome.NEW_GENERATION,
    ),
    alter_once(
        "changed under an unselected name and renamed back",
        (
            "alter table {t} rename to hidden_{t}; insert into hidden_{t} values (77, 'x', 7)",
            "alter table hidden_{t} rename to {t}",
        ),
        Outcome.EQUAL,
    ),
    Alteration(
        "a table created later",
        (),
        (
            Step(("create table {t} (id int primary key); insert into {t} values (1)",), Outcome.EQUAL),
            Step(("insert into {t} values (2)",), Outcome.SAME),
        ),
        first_outcome=Outcome.EXCLUDED,
    ),
    Alteration(
        "dropped from the publication and added again",
        ORDERS,
        (
            Step(('alter publication "{publication}" drop table {t}', "delete from {t} where id = 1"), Outcome.KEPT),
            Step(('alter publication "{publication}" add table {t}',), Outcome.RESNAPSHOT),
        ),
        expected_log="{t} is left out: it is not in publication",
    ),
    Alteration(
        "names and keys that look like variables",
        (
            'create table {t} ("${{env:HOME}}" text primary key, "${{spark.app.name}}" text)',
            "insert into {t} values ('${{env:HOME}}', '${{spark.app.name}}')",
        ),
        (Step((), Outcome.SAME, _has_literal_names),),
    ),
)

EXCLUDED = (
    Alteration(
        "two tables with the same unquoted name",
        (
            'create schema "public.{t}"; create table "public.{t}".b (id int primary key)',
            'create table "{t}.b" (id int primary key)',
        ),
        expected_log="public.{t}.b is left out: another table has the same unquoted name",
        first_outcome=Outcome.EXCLUDED,
    ),
    _excluded(
        "a deferrable key is no replica identity",
        ("create table {t} (id int primary key deferrable); insert into {t} values (1)",),
        "update {t} set id = 2",
    ),
    _excluded(
        "a table without columns",
        ("create table {t} (); alter table {t} replica identity full",),
        "insert into {t} default values",
    ),
    _excluded(
        "a generated key",
        (
            "create table {t} (n int, g int generated always as (n * 2) stored primary key)",
            "insert into {t} values (1)",
        ),
        "update {t} set n = 3",
    ),
    Alteration(
        "identity full with a generated column",  # excluded on 18; before, the column is ignored
        (
            "create table {t} (id int primary key, n int, g int generated always as (n * 2) stored)",
            "alter table {t} replica identity full; insert into {t} values (1, 1)",
        ),
        (Step(("update {t} set n = 3; delete from {t}",), Outcome.UNCHECKED),),
        first_outcome=Outcome.UNCHECKED,
    ),
    _excluded(
        "partitions whose replica identities have different keys",
        (
            *PARTS,
            "create unique index {t}_e on {t}_eu (id); create unique index {t}_u on {t}_us (id, region)",
            "alter table {t}_eu replica identity using index {t}_e",
            "alter table {t}_us replica identity using index {t}_u",
        ),
        "update {t} set n = -n",
        "{t} is left out: its partitions differ in their replica identity",
    ),
    _excluded(
        "partitions with a key that their root does not have",  # rows of two partitions may have equal keys
        (
            "create table {t} (id int not null, region text) partition by list (region)",
            *(
                f"create table {{t}}_{region} partition of {{t}} for values in ('{region}');"
                f"create unique index {{t}}_{region}_id on {{t}}_{region} (id);"
                f"alter table {{t}}_{region} replica identity using index {{t}}_{region}_id;"
                f"insert into {{t}} values (1, '{region}')"
                for region in ("eu", "us")
            ),
        ),
        "update {t} set id = id + 1",
        "{t} is left out: it has no replica identity",
    ),
)

PARTITIONS = (
    Alteration(
        "partitions are stored under their root; one is truncated, a row moves",
        PARTS,
        (
            Step(
                (
                    "update {t} set n = -n where id < 5; update {t} set region = 'us' where id = 2",
                    "truncate {t}_eu; insert into {t} values (100, 'eu', 1)",
                ),
                Outcome.SAME,
                _has_root_name,
            ),
        ),
    ),
    alter_once(
        "partitions with a replica identity that their root does not have",
        ("update {t} set n = -n; update {t} set region = 'us' where id = 2; delete from {t} where id = 4",),
        Outcome.SAME,
        (
            *PARTS,
            "create unique index {t}_e on {t}_eu (region, id); create unique index {t}_u on {t}_us (id, region)",
            "alter table {t}_eu replica identity using index {t}_e",
            "alter table {t}_us replica identity using index {t}_u",
        ),
    ),
    *(
        Alteration(
            f"a partition is {name}",
            PARTS,
            (Step((ddl,), outcome), Step(("update {t} set n = n + 1",), Outcome.SAME)),
        )
        for name, ddl, outcome in (
            ("created", "create table {t}_as partition of {t} for values in ('as')", Outcome.SAME),
            (
                "attached with rows",
                (
                    "create table {t}_as (like {t} including all); insert into {t}_as values (50, 'as', 1);"
                    "alter table {t} attach partition {t}_as for values in ('as')"
                ),
                Outcome.RESNAPSHOT,
            ),
            (
                "detached, changed and attached",
                (
                    "alter table {t} detach partition {t}_eu; update {t}_eu set n = -n;"
                    "alter table {t} attach partition {t}_eu for values in ('eu')"
                ),
                Outcome.RESNAPSHOT,
            ),
            ("detached", "alter table {t} detach partition {t}_eu", Outcome.RESNAPSHOT),
            ("dropped", "drop table {t}_us", Outcome.RESNAPSHOT),
        )
    ),
    Alteration(
        "a partition is temporarily unlogged",
        PARTS,
        (
            Step(("alter table {t}_eu set unlogged; update {t} set n = -n",), Outcome.KEPT),
            Step(("alter table {t}_eu set logged",), Outcome.RESNAPSHOT),
        ),
        expected_log='{t} is left out: its partition "public"."{t}_eu" is unlogged',
    ),
    alter_once(
        "a partitioned table without partitions",
        ("create table {t}_1 partition of {t} default; insert into {t} values (1)",),
        Outcome.EQUAL,
        ("create table {t} (id int primary key) partition by range (id)",),
    ),
    Alteration(
        "a partitioned table created later, without partitions",
        (),
        (
            Step(("create table {t} (id int primary key) partition by range (id)",), Outcome.EQUAL),
            Step(("create table {t}_1 partition of {t} default; insert into {t} values (1)",), Outcome.EQUAL),
        ),
        first_outcome=Outcome.EXCLUDED,
    ),
    alter_once(
        "partitions with columns in another order, without a key",
        (
            "delete from {t} where ctid = (select min(ctid) from {t})",
            "update {t} set b = 'z' where b = 'y'",
        ),
        Outcome.SAME,
        (
            "create table {t} (a int, b text) partition by list (a); create table {t}_1 (b text, a int)",
            "alter table {t} attach partition {t}_1 for values in (1)",
            "alter table {t} replica identity full; alter table {t}_1 replica identity full",
            "insert into {t} values (1, 'x'), (1, 'x'), (1, 'y')",
        ),
    ),
)

VALUES = (
    *(
        Alteration(
            f"unchanged TOAST values with identity {identity}",
            (
                "create table {t} (id int primary key, k int not null, big text, n int)",
                "alter table {t} alter big set storage external; create unique index {t}_k on {t} (k)",
                f"alter table {{t}} replica identity {identity}",
                "insert into {t} select i, i, repeat(i::text, 5000), 0 from generate_series(1, 5) i",
            ),
            (
                Step(
                    (
                        "update {t} set n = 1 where id = 1",
                        (
                            "begin; update {t} set n = 2, big = repeat('x', 9000) where id = 2;"
                            "update {t} set n = 3 where id = 2; commit"
                        ),
                        "update {t} set id = 30, k = 30 where id = 3",
                        "update {t} set k = 40, n = 4 where id = 4",
                        "delete from {t} where id = 5",
                    ),
                    Outcome.SAME,
                    _is_partial(identity != "full"),
                ),
            ),
        )
        for identity in ("default", "full", "using index {t}_k")
    ),
    Alteration(
        "generated columns are in neither snapshot nor stream",
        (
            "create table {t} (id int primary key, n int, twice int generated always as (n * 2) stored)",
            "insert into {t} values (1, 1)",
        ),
        (Step(("insert into {t} values (2, 2)",), Outcome.SAME, _has_no_generated_column),),
    ),
)
