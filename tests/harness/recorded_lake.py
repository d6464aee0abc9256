"""A lake that records the statements of the adapter's logic, and answers its queries with what a test gives it."""

from collections.abc import Callable, Sequence
from typing import Any

Rows = list[dict[str, Any]]


class RecordedLake:
    """answers: rows by a text in the query, in the order in which texts are tried. tables: that exist; none for all."""

    def __init__(self, answers: dict[str, Rows | Callable[[], Rows]], tables: set[str] | None = None) -> None:
        self.answers, self.tables = answers, tables
        self.statements: list[str] = []
        self.parallel: list[list[str]] = []

    def select(self, sql: str) -> Rows:
        statement = " ".join(sql.split())
        self.statements.append(statement)
        rows = next((rows for text, rows in self.answers.items() if text in statement), [])
        return rows() if callable(rows) else rows

    def select_all(self, statements: Sequence[str]) -> list[Rows]:
        self.parallel.append(list(statements))
        return [self.select(statement) for statement in statements]

    def render(self, macro: str, **_: Any) -> str:
        return macro

    def create(self, _: str, statement: str) -> None:
        self.select(statement)

    def drop(self, table: str) -> None:
        self.select(f"drop table {table}")

    def exists(self, table: str) -> bool:
        return self.tables is None or table in self.tables

    def columns(self, _: str) -> dict[str, str]:
        return {}

    def places(self, *parts: str) -> list[int]:
        """The positions of the statements with these parts, in the order of the parts."""
        return [next(number for number, statement in enumerate(self.statements) if part in statement) for part in parts]

    @property
    def changes(self) -> list[str]:
        """The statements that are no queries."""
        return [statement for statement in self.statements if not statement.startswith(("select", "(select"))]
