"""Tables that come, go, are renamed, partitioned, or can't be replicated; and values that the log leaves out."""

from tests.harness.alterations import ORDERS, PARTS, Alteration, Check, Outcome, Step, once
from tests.harness.postgres_jobs import PostgresJobs


def _events(jobs: PostgresJobs, table: str) -> list[dict[str, object]]:
    return jobs.events(jobs.table(table).table_id)


def _under_the_root(jobs: PostgresJobs, table: str) -> None:
    events = _events(jobs, table)
    assert {event["table_name"] for event in events} == {table}
    assert len({event["partition_id"] for event in events}) == 2


def _is_partial(expected: bool) -> Check:
    def check(jobs: PostgresJobs, table: str) -> None:
        assert any(event["is_partial"] for event in _events(jobs, table)) == expected

    return check


def _without_generated(jobs: PostgresJobs, table: str) -> None:
    assert {frozenset(event["columns"]) for event in _events(jobs, table)} == {frozenset({"id", "n"})}  # type: ignore[call-overload]


def _as_written(jobs: PostgresJobs, table: str) -> None:
    assert [column.name for column in jobs.table(table).columns] == ["${env:HOME}", "${spark.app.name}"]


def _left_out(name: str, created: tuple[str, ...], change: str, said: str = "") -> Alteration:
    return Alteration(name, created, (Step((change,), Outcome.LEFT_OUT),), said, Outcome.LEFT_OUT)


NAMES = (
    once(
        "a table dropped and created again",
        (
            "drop table {t}; create table {t} (id int primary key, other date)",
            "insert into {t} values (1, '2026-01-01')",
        ),
        Outcome.GENERATION,
    ),
    once("a table dropped", ("drop table {t}",), Outcome.ENDED),
    once(
        "a table renamed away",
        ("alter table {t} rename to hidden_{t}; update hidden_{t} set n = 0",),
        Outcome.ENDED,
    ),
    Alteration(
        "a table renamed in",
        ("create table hidden_{t} (id int primary key); insert into hidden_{t} values (1)",),
        (
            Step(("alter table hidden_{t} rename to {t}; insert into {t} values (2)",), Outcome.EQUAL),
            Step(("insert into {t} values (3)",), Outcome.SAME),
        ),
        first=Outcome.LEFT_OUT,
    ),
    Alteration(
        "a table renamed to another name that is selected",
        ("create table {t}_old (id int primary key); insert into {t}_old values (1)",),
        (
            Step(
                ("insert into {t}_old values (2)", "alter table {t}_old rename to {t}", "delete from {t} where id = 1"),
                Outcome.EQUAL,
            ),
            Step(("insert into {t} values (3)",), Outcome.SAME),
        ),
        first=Outcome.LEFT_OUT,
    ),
    once(
        "a table renamed away without a key leaves its name to its successor",
        (
            (
                "begin; alter table {t} rename to {t}_old; alter table {t}_old drop constraint {t}_pkey;"
                "create table {t} (id int primary key, note text); insert into {t} values (3, 'new'); commit"
            ),
        ),
        Outcome.GENERATION,
    ),
    once(
        "changed under a name that is not selected, and renamed back",
        (
            "alter table {t} rename to hidden_{t}; insert into hidden_{t} values (77, 'x', 7)",
            "alter table hidden_{t} rename to {t}",
        ),
        Outcome.EQUAL,
    ),
    Alteration(
        "a table made later",
        (),
        (
            Step(("create table {t} (id int primary key); insert into {t} values (1)",), Outcome.EQUAL),
            Step(("insert into {t} values (2)",), Outcome.SAME),
        ),
        first=Outcome.LEFT_OUT,
    ),
    Alteration(
        "taken out of the publication and put in again",
        ORDERS,
        (
            Step(('alter publication "{publication}" drop table {t}', "delete from {t} where id = 1"), Outcome.KEPT),
            Step(('alter publication "{publication}" add table {t}',), Outcome.ANEW),
        ),
        said="{t} is left out: it is not in publication",
    ),
    Alteration(
        "names and keys that look like variables",
        (
            'create table {t} ("${{env:HOME}}" text primary key, "${{spark.app.name}}" text)',
            "insert into {t} values ('${{env:HOME}}', '${{spark.app.name}}')",
        ),
        (Step((), Outcome.SAME, _as_written),),
    ),
)

LEFT_OUT = (
    Alteration(
        "two tables whose names are written alike",
        (
            'create schema "public.{t}"; create table "public.{t}".b (id int primary key)',
            'create table "{t}.b" (id int primary key)',
        ),
        said="public.{t}.b is left out: another table has the same unquoted name",
        first=Outcome.LEFT_OUT,
    ),
    _left_out(
        "a deferrable key is no identity",
        ("create table {t} (id int primary key deferrable); insert into {t} values (1)",),
        "update {t} set id = 2",
    ),
    _left_out(
        "a table without columns",
        ("create table {t} (); alter table {t} replica identity full",),
        "insert into {t} default values",
    ),
    _left_out(
        "a key that is generated",
        (
            "create table {t} (n int, g int generated always as (n * 2) stored primary key)",
            "insert into {t} values (1)",
        ),
        "update {t} set n = 3",
    ),
    Alteration(
        "identity full with a generated column",  # left out on 18, without it before
        (
            "create table {t} (id int primary key, n int, g int generated always as (n * 2) stored)",
            "alter table {t} replica identity full; insert into {t} values (1, 1)",
        ),
        (Step(("update {t} set n = 3; delete from {t}",), Outcome.UNASKED),),
        first=Outcome.UNASKED,
    ),
    _left_out(
        "partitions whose identities have other keys",
        (
            *PARTS,
            "create unique index {t}_e on {t}_eu (id); create unique index {t}_u on {t}_us (id, region)",
            "alter table {t}_eu replica identity using index {t}_e",
            "alter table {t}_us replica identity using index {t}_u",
        ),
        "update {t} set n = -n",
        "{t} is left out: its partitions differ in their replica identity",
    ),
    _left_out(
        "partitions whose keys are not their root's",  # a row of one may have the key of another's
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
        "partitions land under their root; one is truncated, a row moves",
        PARTS,
        (
            Step(
                (
                    "update {t} set n = -n where id < 5; update {t} set region = 'us' where id = 2",
                    "truncate {t}_eu; insert into {t} values (100, 'eu', 1)",
                ),
                Outcome.SAME,
                _under_the_root,
            ),
        ),
    ),
    once(
        "partitions have an identity that their root does not",
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
                Outcome.ANEW,
            ),
            (
                "detached, changed and attached",
                (
                    "alter table {t} detach partition {t}_eu; update {t}_eu set n = -n;"
                    "alter table {t} attach partition {t}_eu for values in ('eu')"
                ),
                Outcome.ANEW,
            ),
            ("detached", "alter table {t} detach partition {t}_eu", Outcome.ANEW),
            ("dropped", "drop table {t}_us", Outcome.ANEW),
        )
    ),
    Alteration(
        "a partition is unlogged for a while",
        PARTS,
        (
            Step(("alter table {t}_eu set unlogged; update {t} set n = -n",), Outcome.KEPT),
            Step(("alter table {t}_eu set logged",), Outcome.ANEW),
        ),
        said='{t} is left out: its partition "public"."{t}_eu" is unlogged',
    ),
    once(
        "a partitioned table without partitions",
        ("create table {t}_1 partition of {t} default; insert into {t} values (1)",),
        Outcome.EQUAL,
        ("create table {t} (id int primary key) partition by range (id)",),
    ),
    Alteration(
        "a partitioned table made later, without partitions",
        (),
        (
            Step(("create table {t} (id int primary key) partition by range (id)",), Outcome.EQUAL),
            Step(("create table {t}_1 partition of {t} default; insert into {t} values (1)",), Outcome.EQUAL),
        ),
        first=Outcome.LEFT_OUT,
    ),
    once(
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
        (Step(("insert into {t} values (2, 2)",), Outcome.SAME, _without_generated),),
    ),
)
