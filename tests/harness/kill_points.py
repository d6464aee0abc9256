"""Points at which a job or a run of dbt is killed, or at which something else is done meanwhile.

Jobs call hooks; dbt's statements are looked at before they are executed.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from dbt.adapters.factory import FACTORY
from dbt.adapters.spark.session import Cursor
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession


class Killed(BaseException):
    """Raised by a hook: the job ends there as if it had been killed."""


def call_once(work: Callable[[], object]) -> Callable[[object], None]:
    """A hook that does `work` when it is first called."""
    done = threading.Event()

    def hook(_: object) -> None:
        if not done.is_set():
            done.set()
            work()

    return hook


def kill(_: object) -> None:
    """A hook that ends its job at once."""
    raise Killed


class StatementKilled(Exception):
    """Raised in place of a statement, and of all after it."""


@contextmanager
def watched(look: Callable[[str], None]) -> Iterator[None]:
    """`look` gets every statement of dbt's before it happens; what it raises happens in its place."""
    execute = Cursor.execute

    def looked_at(cursor: Cursor, sql: str, *parameters: Any) -> None:
        look(sql)
        execute(cursor, sql, *parameters)

    Cursor.execute = looked_at  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        Cursor.execute = execute  # type: ignore[method-assign]


@contextmanager
def killed_at(pattern: Callable[[str], bool]) -> Iterator[None]:
    """dbt dies before the first statement that matches: none of its statements happen from there on."""
    dead: list[str] = []

    def look(sql: str) -> None:
        if dead or pattern(sql):
            dead.append(sql)
            raise StatementKilled(sql)

    with watched(look):
        yield
    assert dead, "no statement matched"


@contextmanager
def meanwhile(text: str, work: Callable[[], object]) -> Iterator[None]:
    """`work` is done before dbt's first statement with `text`."""
    done: list[str] = []

    def look(sql: str) -> None:
        if text in sql and not done:
            done.append(sql)
            with another_dbt():
                work()

    with watched(look):
        yield
    assert done, "no statement matched"


@contextmanager
def during(text: str, work: Callable[[], object]) -> Iterator[list[str]]:
    """`work` is done while dbt's first statement with `text` is under way: after it has planned, before it commits.

    Gives a list that gets the error of the statement, if it fails.
    """
    done: list[str] = []
    errors: list[str] = []
    session: Any = SparkSession.builder.getOrCreate()

    def look(sql: str) -> None:
        if text not in sql or done:
            return
        done.append(sql)
        state = session._jsparkSession.sessionState()
        skip = session._jvm.org.apache.spark.sql.execution.CommandExecutionMode.SKIP()
        plan = state.executePlan(state.sqlParser().parsePlan(sql), skip).executedPlan()
        work()
        try:
            plan.executeCollect()
        except Py4JJavaError as error:
            errors.append(str(error))
            raise

    with watched(look):
        yield errors
    assert done, "no statement matched"


@contextmanager
def another_dbt() -> Iterator[None]:
    """A dbt inside of another leaves to that what it had: the adapter with its connections, and the branch."""
    spark = SparkSession.builder.getOrCreate()
    adapters, branch = FACTORY.adapters, spark.conf.get("spark.wap.branch", "")
    FACTORY.adapters = {}
    try:
        yield
    finally:
        FACTORY.adapters = adapters
        spark.conf.set("spark.wap.branch", str(branch))
