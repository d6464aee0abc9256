"""Points at which a job or a run of dbt is killed, or at which the test does something else.

Jobs call hooks; dbt's statements are intercepted before they are executed.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from dbt.adapters.factory import FACTORY
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from dbt.adapters.tidemark.session_connection import SessionCursor


class Killed(BaseException):
    """Raised by a hook: the job ends as if it had been killed."""


def call_once(work: Callable[[], object]) -> Callable[[object], None]:
    """A hook that calls `work` the first time."""
    done = threading.Event()

    def hook(_: object) -> None:
        if not done.is_set():
            done.set()
            work()

    return hook


def kill(_: object) -> None:
    """A hook that ends its job."""
    raise Killed


class StatementKilled(Exception):
    """Raised in place of a statement and of all later ones."""


@contextmanager
def intercept_statements(on_statement: Callable[[str], None]) -> Iterator[None]:
    """Calls `on_statement` with every statement of dbt before its execution; its error replaces the execution."""
    execute = SessionCursor.execute

    def intercepted(cursor: SessionCursor, sql: str, *parameters: Any) -> None:
        on_statement(sql)
        execute(cursor, sql, *parameters)

    SessionCursor.execute = intercepted  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        SessionCursor.execute = execute  # type: ignore[method-assign]


@contextmanager
def kill_at_statement(pattern: Callable[[str], bool]) -> Iterator[None]:
    """Kills dbt before the first statement that matches: neither it nor any later statement is executed."""
    killed: list[str] = []

    def on_statement(sql: str) -> None:
        if killed or pattern(sql):
            killed.append(sql)
            raise StatementKilled(sql)

    with intercept_statements(on_statement):
        yield
    assert killed, "no statement matched"


@contextmanager
def run_before_statement(text: str, work: Callable[[], object]) -> Iterator[None]:
    """Calls `work` before dbt's first statement with `text`."""
    done: list[str] = []

    def on_statement(sql: str) -> None:
        if text in sql and not done:
            done.append(sql)
            with isolated_dbt():
                work()

    with intercept_statements(on_statement):
        yield
    assert done, "no statement matched"


@contextmanager
def run_during_statement(text: str, work: Callable[[], object]) -> Iterator[list[str]]:
    """Calls `work` while dbt's first statement with `text` is in progress: after its planning, before its commit.

    Yields a list that gets the error of the statement if it fails.
    """
    done: list[str] = []
    errors: list[str] = []
    session: Any = SparkSession.builder.getOrCreate()

    def on_statement(sql: str) -> None:
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

    with intercept_statements(on_statement):
        yield errors
    assert done, "no statement matched"


@contextmanager
def isolated_dbt() -> Iterator[None]:
    """Keeps the adapter of an outer dbt, with its connections, while another one runs."""
    adapters = FACTORY.adapters
    FACTORY.adapters = {}
    try:
        yield
    finally:
        FACTORY.adapters = adapters
