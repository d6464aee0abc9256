"""Columns that are added, dropped, renamed or retyped."""

from tests.harness.alterations import ORDERS, Alteration, Check, Outcome, Step, alter_between_updates, alter_once
from tests.harness.postgres_jobs import PostgresJobs

NUMBERS = (*ORDERS, "alter table {t} alter note type int using n")
_SWAP = "alter table {t} rename note to x; alter table {t} rename n to note; alter table {t} rename x to n"


def _is_dropped(*names: str) -> Check:
    def check(jobs: PostgresJobs, table: str) -> None:
        assert jobs.table(table).dropped == (names or None)

    return check


COLUMNS = (
    *(
        alter_between_updates(ddl, Outcome.SAME)
        for ddl in (
            "alter table {t} add extra text",
            "alter table {t} drop note",
            "alter table {t} alter note type varchar",
            "vacuum full {t}",
            "alter table {t} alter n set default 7",
            "create index on {t} (note)",
            "alter table {t} alter n set statistics 7",
            "truncate {t}; insert into {t} values (1, 'a', 1), (2, 'b', 2)",
        )
    ),
    *(
        alter_between_updates(ddl, Outcome.RESNAPSHOT)
        for ddl in (
            "alter table {t} add extra text default 'x'",
            "alter table {t} add extra timestamptz default clock_timestamp()",
            "alter table {t} rename note to remark",
            "alter table {t} alter n type numeric using n / 10.0",
            "alter table {t} alter n type int using n * 10",
            "alter table {t} alter note type varchar(99)",
            "begin; alter table {t} drop note; alter table {t} add note text; commit",
            "alter table {t} add g int generated always as (n * 2) stored, add extra text default 'x'",
        )
    ),
    Alteration(
        "a column renamed back in one transaction is read again only if rows changed in it",
        ORDERS,
        (
            Step(
                (
                    "begin; alter table {t} rename n to m; alter table {t} rename m to n; commit",
                    "update {t} set n = 6 where id = 1",
                ),
                Outcome.SAME,
            ),
            Step(
                (
                    (
                        "begin; alter table {t} rename n to m; update {t} set m = 9 where id = 1;"
                        "alter table {t} rename m to n; commit"
                    ),
                ),
                Outcome.RESNAPSHOT,
            ),
        ),
    ),
    *(
        alter_once(f"columns {name}", statements, Outcome.EQUAL, NUMBERS)
        for name, statements in {
            "added twice": (
                "alter table {t} add more int default 5",
                "update {t} set note = 7",
                "begin; alter table {t} drop more; alter table {t} add more int; commit",
            ),
            "added and renamed": (
                "alter table {t} add more int",
                "update {t} set more = 5",
                "alter table {t} rename more to most",
            ),
            "added, renamed, added": (
                "alter table {t} add more int; update {t} set more = 5; alter table {t} rename more to most",
                "alter table {t} add more int",
            ),
            "exchanged and back": (_SWAP, "update {t} set note = 7 where id < 5", _SWAP),
            "exchanged, back, and changed again": (
                _SWAP,
                "update {t} set note = 7 where id < 5",
                _SWAP,
                "update {t} set n = 0 where id = 9",
            ),
            "replaced and back": (
                "begin; alter table {t} rename note to old; alter table {t} add note int default 8; commit",
                "update {t} set old = 7 where id < 5",
                "begin; alter table {t} drop note; alter table {t} rename old to note; commit",
            ),
        }.items()
    ),
    Alteration(
        "values of a column dropped before the poll are not those of a later column",
        ORDERS,
        (
            Step(("alter table {t} add more int; update {t} set more = 5; alter table {t} drop more",), Outcome.EQUAL),
            Step(("alter table {t} add more int",), Outcome.EQUAL),
        ),
    ),
    Alteration(
        "a column gets the name of a dropped column",
        ORDERS,
        (
            Step(("alter table {t} drop n; insert into {t} values (77, 'x')",), Outcome.EQUAL),
            Step(
                (
                    "alter table {t} rename note to n; update {t} set n = 'y' where id < 5",
                    "alter table {t} rename n to note",
                ),
                Outcome.EQUAL,
            ),
        ),
    ),
    Alteration(
        "a column added again long after its drop is empty",
        (*ORDERS, "alter table {t} add extra text; update {t} set extra = 'old'"),
        (
            Step(
                ("alter table {t} drop extra", "update {t} set id = id where id = 1"),
                Outcome.EQUAL,
                _is_dropped("extra"),
            ),
            Step(
                ("alter table {t} add extra text", "update {t} set id = id where id = 1"),
                Outcome.EQUAL,
                _is_dropped(),
            ),
        ),
    ),
    Alteration(
        "columns of a table without a key",
        (
            "create table {t} (b int, a int); alter table {t} replica identity full",
            "insert into {t} select i % 3, 1 from generate_series(1, 9) i",
        ),
        tuple(
            Step(
                (f"alter table {{t}} {alteration}", "delete from {t} where ctid = (select min(ctid) from {t})"),
                Outcome.RESNAPSHOT,
            )
            for alteration in ("add c text", "drop b", "rename c to d")
        ),
    ),
    *(
        Alteration(
            f"views are reported: {message}",
            ORDERS,
            (
                Step(("alter table {t} add added varchar(20)",), Outcome.SAME),
                Step(("alter table {t} alter added type text",), Outcome.SAME),
                Step((alteration,), Outcome.EQUAL),
            ),
            expected_log="{t}: " + message,
        )
        for alteration, message in {
            "alter table {t} alter n type numeric(12, 4)": "column n is now of type numeric(12,4), before of integer",
            "alter table {t} rename n to m": "column n is no longer published under this name",
            "alter table {t} drop n": "column n is no longer published under this name",
            "drop table {t}; create table {t} (id int primary key, n text)": (
                "column n is now of type text, before of integer"
            ),
        }.items()
    ),
)
