"""DDL on tables, one table for each case: the statements, and the expected state of the lake.

`{t}` in a statement is the table's name, `{publication}` that of the source's publication.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from tests.harness.postgres_jobs import PostgresJobs

Check = Callable[[PostgresJobs, str], None]


class Outcome(Enum):
    """The effect of a step on the table. The table then equals the source's, unless stated otherwise."""

    EQUAL = "equal to the source's, by stream or snapshot"
    SAME = "equal by the stream alone, without a new snapshot"
    RESNAPSHOT = "a new snapshot of the same generation"
    NEW_GENERATION = "a new generation; the previous one has ended"
    FIRST_GENERATION = "the first generation again, with a new snapshot"
    ENDED = "its rows are deleted, and no table has its name"
    KEPT = "unchanged, although the source's table has changed"
    EXCLUDED = "not in the lake"
    UNCHECKED = "not checked"


@dataclass(frozen=True)
class Step:
    """Statements, each committed by itself before the next catalog poll; then stream and snapshots catch up."""

    statements: tuple[str, ...]
    outcome: Outcome
    check: Check | None = None


@dataclass(frozen=True)
class Alteration:
    """The case of one table.

    created: statements before the source is read for the first time. expected_log: a message in the log of the jobs.
    first_outcome: the state of the table before the first step.
    """

    name: str
    created: tuple[str, ...]
    steps: tuple[Step, ...] = ()
    expected_log: str = ""
    first_outcome: Outcome = Outcome.EQUAL


ORDERS = (
    "create table {t} (id int primary key, note text, n int)",
    "insert into {t} select i, 'note ' || i, i from generate_series(1, 20) i",
)
FULL = (*ORDERS, "alter table {t} replica identity full")
PARTS = (
    "create table {t} (id int, region text, n int, primary key (id, region)) partition by list (region)",
    "create table {t}_eu partition of {t} for values in ('eu')",
    "create table {t}_us (n int, region text not null, id int not null, primary key (id, region))",
    "alter table {t} attach partition {t}_us for values in ('us')",
    "insert into {t} select i, case i % 2 when 0 then 'eu' else 'us' end, i from generate_series(1, 20) i",
)


def alter_between_updates(ddl: str, outcome: Outcome, created: tuple[str, ...] = ORDERS) -> Alteration:
    """The table is altered between two changes of its rows."""
    first, second = "update {t} set n = n + 1 where id = 1", "update {t} set n = n + 1 where id = 2"
    name = ddl.format(t="t") + (" with identity full" if created == FULL else "")
    return Alteration(name, created, (Step((first, ddl, second, "delete from {t} where id = 3"), outcome),))


def alter_once(
    name: str, statements: tuple[str, ...], outcome: Outcome, created: tuple[str, ...] = ORDERS
) -> Alteration:
    return Alteration(name, created, (Step(statements, outcome),))
