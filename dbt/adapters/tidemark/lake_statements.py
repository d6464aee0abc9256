"""What the adapter's logic needs of Spark and dbt: the statements, and names of tables."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


class LakeStatements(Protocol):
    """Statements on the lake. Tables are named `<schema>.<table>`, without the catalog."""

    def select(self, sql: str) -> list[dict[str, Any]]:
        """The rows of a statement, by column name."""
        ...

    def select_all(self, statements: Sequence[str]) -> list[list[dict[str, Any]]]:
        """The rows of statements that do not conflict, executed in parallel. Raises the first error after the last."""
        ...

    def render(self, macro: str, **arguments: Any) -> str:
        """A statement that is a macro of this package."""
        ...

    def create(self, table: str, statement: str) -> None:
        """Executes the statement that creates a table, and adds the table to dbt's cache."""
        ...

    def drop(self, table: str) -> None:
        """Drops a table with its files, or else the view of that name, if it exists."""
        ...

    def exists(self, table: str) -> bool:
        """Whether dbt's cache has a table."""
        ...

    def columns(self, table: str) -> dict[str, str]:
        """The types of a table's columns by name, as at the start of the run; none if the run created it."""
        ...


class NoLake:
    """The statements while dbt parses the project: there are no tables and no rows."""

    def select(self, sql: str) -> list[dict[str, Any]]:  # noqa: ARG002
        """No rows."""
        return []

    def select_all(self, statements: Sequence[str]) -> list[list[dict[str, Any]]]:
        """No rows."""
        return [[] for _ in statements]

    def render(self, macro: str, **arguments: Any) -> str:  # noqa: ARG002
        """No statement."""
        return ""

    def create(self, table: str, statement: str) -> None:
        """Creates nothing."""

    def drop(self, table: str) -> None:
        """Drops nothing."""

    def exists(self, table: str) -> bool:  # noqa: ARG002
        """No table exists."""
        return False

    def columns(self, table: str) -> dict[str, str]:  # noqa: ARG002
        """No columns."""
        return {}


# What Spark lists in place of a name after the last column.
_AFTER_COLUMNS = ("", "# Partition Information", "# Partitioning")


@dataclass(frozen=True)
class Column:
    """A column of a table or query. type: Spark's; empty where only the name is known."""

    name: str
    type: str = ""


def describe(lake: LakeStatements, what: str) -> list[Column]:
    """The columns of a table, a view, or a query (`query <sql>`). Spark may list a table's partitions after them.

    A column's name may begin with `# ` too.
    """
    columns = []
    for row in lake.select(f"describe {what}"):
        if row["col_name"] in _AFTER_COLUMNS:
            break
        columns.append(Column(row["col_name"], row["data_type"]))
    return columns


def literal(text: str) -> str:
    """A SQL string literal."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def identifier(name: str) -> str:
    """A name as a SQL identifier."""
    return "`{}`".format(name.replace("`", "``"))


def union_all(selects: Iterable[str]) -> str:
    """One statement with the rows of all `selects`."""
    return " union all ".join(selects)
