"""Changes the flights while they are replicated: realistic transactions at a given rate.

`make_transaction` creates them with a random generator only; `Traffic` is the thread that commits them. New flights
also serve as probes: each is recorded with the time at which the client knew that its COMMIT was done.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from random import Random
from typing import Any

import psycopg

# After a pause, of this machine or of the server, at most this many seconds of traffic are made up for.
_MAX_BACKLOG_SECONDS = 1.0
_COPIED_COLUMNS = (
    "year, month, day, sched_dep_time, dep_delay, arr_time, sched_arr_time, arr_delay, carrier, "
    "flight, tailnum, origin, dest, air_time, distance, hour, minute, time_hour"
)
_INSERT_COPIES = (
    f"insert into flights ({_COPIED_COLUMNS}, dep_time) "
    f"select {_COPIED_COLUMNS}, coalesce(dep_time, sched_dep_time) from flights where id = any(%(ids)s) "
    "returning id"
)
# A subselect is evaluated once; currval alone would be evaluated for every row of the table.
_LAST_ID = "(select currval(pg_get_serial_sequence('flights', 'id')))"


@dataclass(frozen=True)
class Step:
    """One statement with its parameters."""

    statement: str
    parameters: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Transaction:
    """Statements that are committed or rolled back together."""

    name: str
    steps: tuple[Step, ...]
    commits: bool = True


def _delay_flights(random: Random, ids: list[int]) -> list[Step]:
    update = "update flights set dep_delay = dep_delay + %(late)s, arr_delay = arr_delay + %(late)s "
    delayed_ids = ids[: random.randint(2, 12)]
    return [Step(update + "where id = any(%(ids)s)", {"late": random.randint(-5, 40), "ids": delayed_ids})]


def _update_flight_repeatedly(random: Random, ids: list[int]) -> list[Step]:
    """Changes one row three times."""
    delay = random.randint(-10, 120)
    return [
        Step(
            "update flights set dep_delay = %(late)s where id = %(id)s",
            {"late": delay, "id": ids[0]},
        ),
        Step(
            "update flights set dep_time = sched_dep_time, dep_delay = 0 where id = %(id)s",
            {"id": ids[0]},
        ),
        Step(
            "update flights set arr_delay = %(late)s where id = %(id)s",
            {"late": delay // 2, "id": ids[0]},
        ),
    ]


def _cancel_flights(random: Random, ids: list[int]) -> list[Step]:
    assignments = ", ".join(f"{name} = null" for name in ("dep_time", "dep_delay", "arr_time", "arr_delay", "air_time"))
    return [
        Step(
            f"update flights set {assignments} where id = any(%(ids)s)",
            {"ids": ids[: random.randint(1, 3)]},
        )
    ]


def _reinstate_flights(random: Random, ids: list[int]) -> list[Step]:
    statement = (
        "update flights set dep_time = sched_dep_time, dep_delay = 0, arr_time = sched_arr_time, "
        "arr_delay = %(late)s where id = any(%(ids)s) and dep_time is null"
    )
    return [Step(statement, {"ids": ids, "late": random.randint(-20, 20)})]


def _swap_planes(random: Random, ids: list[int]) -> list[Step]:  # noqa: ARG001
    statement = (
        "update flights as one set tailnum = other.tailnum from flights as other "
        "where (one.id, other.id) in ((%(a)s, %(b)s), (%(b)s, %(a)s))"
    )
    return [Step(statement, {"a": ids[0], "b": ids[1]})]


def _insert_flights(random: Random, ids: list[int]) -> list[Step]:
    return [Step(_INSERT_COPIES, {"ids": ids[: random.randint(1, 5)]})]


def _delete_flights(random: Random, ids: list[int]) -> list[Step]:
    return [Step("delete from flights where id = any(%(ids)s)", {"ids": ids[: random.randint(1, 4)]})]


def _change_airport(random: Random, ids: list[int]) -> list[Step]:
    origin = random.choice(("EWR", "JFK", "LGA"))
    return [
        Step(
            "update flights set origin = %(to)s where id = any(%(ids)s)",
            {"to": origin, "ids": ids[: random.randint(1, 3)]},
        )
    ]


def _delay_flights_of_hour(random: Random, ids: list[int]) -> list[Step]:
    """Changes all flights of an hour; its weather, in the other source, changes afterwards."""
    condition = "(origin, time_hour) = (select origin, time_hour from flights where id = %(id)s)"
    parameters = {"id": ids[0], "late": random.randint(10, 60)}
    return [
        Step(
            f"update flights set dep_delay = dep_delay + %(late)s where {condition} returning origin, time_hour",
            parameters,
        ),
    ]


def _change_registration(random: Random, ids: list[int]) -> list[Step]:
    """Changes a plane's key, and that of its flights."""
    parameters = {"id": ids[0], "to": f"N{random.randrange(10**9)}"}
    assignment = "set tailnum = %(to)s where tailnum = (select tailnum from flights where id = %(id)s)"
    return [Step(f"update planes {assignment}", parameters), Step(f"update flights {assignment}", parameters)]


def _insert_and_delete_flight(random: Random, ids: list[int]) -> list[Step]:
    """Inserts and deletes a row within one transaction."""
    return [
        Step(_INSERT_COPIES, {"ids": ids[:1]}),
        Step(
            f"update flights set dep_delay = %(late)s where id = {_LAST_ID}",
            {"late": random.randint(0, 60)},
        ),
        Step(f"delete from flights where id = {_LAST_ID}"),
    ]


_Maker = Callable[[Random, list[int]], list[Step]]
# The kinds of transactions with their frequency per thousand.
KINDS: dict[str, tuple[int, _Maker]] = {
    "delays": (420, _delay_flights),
    "day of a flight": (150, _update_flight_repeatedly),
    "cancellation": (90, _cancel_flights),
    "reinstatement": (50, _reinstate_flights),
    "planes swapped": (100, _swap_planes),
    "new flights": (80, _insert_flights),
    "removal": (40, _delete_flights),
    "other airport": (30, _change_airport),
    "storm": (15, _delay_flights_of_hour),
    "new registration": (3, _change_registration),
    "second thoughts": (12, _insert_and_delete_flight),
    "rolled back": (10, _delay_flights),
}


def make_transaction(random: Random, flights: int) -> Transaction:
    """The next transaction, on flights with ids from 1 to `flights`; some of them may have been deleted."""
    (name,) = random.choices(list(KINDS), [weight for weight, _ in KINDS.values()])
    ids = random.sample(range(1, flights + 1), 12)
    return Transaction(name, tuple(KINDS[name][1](random, ids)), name != "rolled back")


@dataclass(frozen=True)
class Probe:
    """A new flight, and when the client knew that it was committed (seconds since the epoch)."""

    flight: int
    committed: float


class Traffic:
    """A thread that commits `rate` row changes per second from `start` to `stop`; `rate` may be set at any time."""

    def __init__(
        self, dsn: str, rate: int, flights: int, storm: Callable[[str, datetime], int], seed: int = 2013
    ) -> None:
        """storm: changes the weather of an hour at an airport, and returns the number of changed documents."""
        self.changes = 0
        self.transactions = 0
        self.probes: list[Probe] = []
        self._dsn = dsn
        self.rate = rate
        self._flights = flights
        self._storm = storm
        self._random = Random(seed)  # noqa: S311 - flights, not keys
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="traffic", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread after the current transaction. Raises its error, if it failed."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()
        self.check()

    def check(self) -> None:
        """Raises the error of the thread, if it failed."""
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            with psycopg.connect(self._dsn, autocommit=True) as connection:
                self._commit_transactions(connection)
        except BaseException as error:  # noqa: BLE001 - `check` raises it
            self._failure = error

    def _commit_transactions(self, connection: psycopg.Connection[Any]) -> None:
        due = time.monotonic()
        while not self._stop.is_set():
            due = max(due, time.monotonic() - _MAX_BACKLOG_SECONDS)
            if self._stop.wait(max(0.0, due - time.monotonic())):
                return
            due += self._commit(connection, make_transaction(self._random, self._flights)) / self.rate

    def _commit(self, connection: psycopg.Connection[Any], transaction: Transaction) -> int:
        """Executes a transaction; returns the number of changed rows."""
        changes, returned_rows = 0, []
        with connection.transaction(force_rollback=not transaction.commits):
            for step in transaction.steps:
                cursor = connection.execute(step.statement.encode(), step.parameters)
                changes += cursor.rowcount
                if cursor.description:
                    returned_rows = cursor.fetchall()
        if not transaction.commits:
            return 1
        committed_at = time.time()
        self.changes += changes
        self.transactions += 1
        if returned_rows and transaction.name == "new flights":
            self.probes.append(Probe(returned_rows[0][0], committed_at))
        if returned_rows and transaction.name == "storm":
            self.changes += self._storm(returned_rows[0][0], returned_rows[0][1].astimezone(timezone.utc))
        return max(changes, 1)
