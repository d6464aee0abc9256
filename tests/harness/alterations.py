"""Alterations of tables, one table each: the statements, and what the lake is to make of them.

`{t}` in a statement is the table's name, `{publication}` that of the source's publication.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from tests.harness.postgres_jobs import PostgresJobs

Check = Callable[[PostgresJobs, str], None]


class Outcome(Enum):
    """What a step makes of the table, which then equals the source's, unless said otherwise."""

    EQUAL = "whatever it took"
    SAME = "the stream is enough: no new snapshot"
    ANEW = "a new snapshot of the same generation"
    GENERATION = "another generation; the one before has ended"
    FIRST = "the generation of the beginning again, with a new snapshot"
    ENDED = "its rows leave, and nothing has its name"
    KEPT = "as it was, though the source's is another by now"
    LEFT_OUT = "not in the lake"
    UNASKED = "nothing is said of it"


@dataclass(frozen=True)
class Step:
    """Statements while nobody looks, each committed by itself; then stream and snapshots catch up."""

    statements: tuple[str, ...]
    outcome: Outcome
    check: Check | None = None


@dataclass(frozen=True)
class Alteration:
    """What befalls one table.

    created: statements before the source is first looked at. said: what the log of the jobs has in the end. first:
    what the table is before the first step.
    """

    name: str
    created: tuple[str, ...]
    steps: tuple[Step, ...] = ()
    said: str = ""
    first: Outcome = Outcome.EQUAL


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


def between(ddl: str, outcome: Outcome, created: tuple[str, ...] = ORDERS) -> Alteration:
    """It is altered between two changes of its rows."""
    first, last = "update {t} set n = n + 1 where id = 1", "update {t} set n = n + 1 where id = 2"
    name = ddl.format(t="t") + (" with identity full" if created == FULL else "")
    return Alteration(name, created, (Step((first, ddl, last, "delete from {t} where id = 3"), outcome),))


def once(name: str, statements: tuple[str, ...], outcome: Outcome, created: tuple[str, ...] = ORDERS) -> Alteration:
    return Alteration(name, created, (Step(statements, outcome),))
