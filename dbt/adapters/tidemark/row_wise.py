"""Rejects `evaluation: incremental` if a changed row can change more than its own output. Pure, by sqlglot's tree.

Allowed are one table, the filter of `rows(...)`, projections and filters, in the query and the views below it. A row
must keep the key and the checkpoint that it has in the table, because its older version and its changes are found by
them.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError

# The text that `rows(...)` renders in place of its filter, and the filter that the check puts there: no other query has
# it.
CHANGED_ROWS = "/* changed rows */"
_INPUT_FILTER = "where _checkpoint_id = -1"

# The columns of `row_state` that identify a row's versions, and the names under which they are passed on.
_KEY_COLUMNS = {"_row_key": "row_key", "_checkpoint_id": "checkpoint_id"}
_BASE_TABLE = "core.row_state"
# The key of a copy of a row without a key, as `tidemark codegen` writes it.
_COPY_KEY = "if(copy = 1, row_key, row_key || '#' || copy)"

# Clauses by the name of sqlglot's argument, and the operators that Spark makes of the others.
_ALLOWED_CLAUSES = {"with_", "expressions", "from_", "where", "laterals", "hint"}
_SOURCE_CLAUSES = {"this", "db", "catalog", "alias"}
_OPERATORS = {
    "distinct": "Distinct",
    "group": "Aggregate",
    "having": "Aggregate",
    "order": "Sort",
    "sort": "Sort",
    "limit": "Limit",
    "offset": "Offset",
    "joins": "Join",
    "qualify": "Window",
    "windows": "Window",
}
_RELATIVE_DATE = re.compile(r"\s*((?:now|today|tomorrow|yesterday)\b[^,]*)", re.IGNORECASE)
_VARYING_FUNCTION = re.compile(
    "(?:rand|randn|random|randstr|uniform|uuid|shuffle|current_timestamp|localtimestamp|current_date|current_time|now|"
    "monotonically_increasing_id|spark_partition_id|input_file_\\w+|aes_encrypt|reflect|try_reflect|java_method|"
    "current_user|session_user|user)"
)

# A column's name in `row_state` by its name here; empty if it is something else.
Origins = dict[str, str]


class UnreadableQuery(Exception):
    """sqlglot can't read a query."""


@dataclass
class RowWiseCheck:
    """Walks a query and the views below it. views: SQL by `<schema>.<view>`. is_aggregate: whether the function with a
    name is an aggregate.
    """

    views: Mapping[str, str]
    is_aggregate: Callable[[str], bool]
    inputs: int = 0
    tables: int = 0
    violations: list[str] = field(default_factory=list)
    lacks_checkpoint: bool = False

    def problem(self, sql: str) -> str:
        """Why a query is not row by row; empty if it is. Raises UnreadableQuery."""
        self.is_aggregate = cache(self.is_aggregate)  # a view has a cast, with the same functions, for each column
        outputs = self._check_query(_parse_query(sql.replace(CHANGED_ROWS, _INPUT_FILTER)), {})
        if self.lacks_checkpoint:
            return "the view of rows(...) has no _checkpoint_id"
        if self.inputs != 1:
            return f"evaluation: 'incremental' reads {self.inputs} inputs by rows(...)"
        if self.violations:
            return f"evaluation: 'incremental' with {self.violations[0]} in the query"
        if self.tables != 1:
            return "evaluation: 'incremental' reads another input in addition to rows(...)"
        if outputs.get("_row_key") != "row_key":
            return "evaluation: 'incremental' with a _row_key of its own in the query"
        return ""

    # --- Queries ---

    def _check_query(self, query: exp.Expr, ctes: Mapping[str, Origins]) -> Origins:
        """The origins of a query's columns."""
        if isinstance(query, exp.Subquery):
            self._check_clauses(query)
            return self._check_query(query.this, ctes)
        known_ctes = dict(ctes)
        for cte in query.args["with_"].expressions if query.args.get("with_") else ():
            self._check_alias(cte)
            known_ctes[cte.alias.lower()] = self._check_query(cte.this, known_ctes)
        if isinstance(query, exp.SetOperation):
            self.violations.append("Union")
            self._check_query(query.right, known_ctes)
            return self._check_query(query.left, known_ctes)
        if not isinstance(query, exp.Select):
            self.violations.append(type(query).__name__)
            return {}
        return self._check_select(query, known_ctes)

    def _check_select(self, select: exp.Select, ctes: Mapping[str, Origins]) -> Origins:
        clauses = [name for name, value in select.args.items() if value and name not in _ALLOWED_CLAUSES]
        self.violations += [_OPERATORS.get(name, name) for name in clauses]
        origins = self._check_source(select.args["from_"].this, ctes) if select.args.get("from_") else {}
        for join in select.args.get("joins") or ():
            self._check_source(join.this, ctes)
        where = select.args.get("where")
        if where is not None and where.this.sql() == "_checkpoint_id = -1":
            self.inputs += 1
            self.lacks_checkpoint |= "_checkpoint_id" not in origins
        for lateral in select.args.get("laterals") or ():
            origins = origins | dict.fromkeys(_list_lateral_columns(lateral), "")
        for expression in [*select.expressions, where, *(select.args.get("laterals") or ())]:
            if expression is not None:
                self._check_expression(expression, ctes)
        return self._find_outputs(select, origins)

    def _find_outputs(self, select: exp.Select, origins: Origins) -> Origins:
        """The origins of the columns that a query selects."""
        outputs: Origins = {}
        sources = [select.args.get("from_"), *(select.args.get("joins") or ())]
        source_names = {source.this.alias_or_name.lower() for source in sources if source}
        for expression in select.expressions:
            star = expression.this if isinstance(expression, exp.Column) else expression
            if isinstance(star, exp.Star):
                if isinstance(expression, exp.Column) and expression.table.lower() not in source_names:
                    continue  # the fields of a struct
                excluded_names = {column.name.lower() for column in star.args.get("except_") or ()}
                outputs |= {name: origin for name, origin in origins.items() if name not in excluded_names}
                continue
            name = expression.alias_or_name.lower()
            outputs[name] = _find_origin(expression.unalias(), origins)
            if name in _KEY_COLUMNS and outputs[name] != _KEY_COLUMNS[name]:
                self.violations.append(f"a {name} of its own")
        return outputs

    def _check_source(self, source: exp.Expr, ctes: Mapping[str, Origins]) -> Origins:
        """The origins of the columns of a table or a subquery that a query reads."""
        if isinstance(source, exp.Subquery):
            return self._check_query(source, ctes)
        if not isinstance(source, exp.Table) or isinstance(source.this, exp.Func):
            self.violations.append(type(source).__name__)
            return {}
        self._check_clauses(source)
        name = source.name.lower()
        if not source.db and name in ctes:
            return ctes[name]
        table = f"{source.db}.{source.name}".lower()
        if table in self.views:
            return self._check_query(_parse_query(self.views[table]), {})
        self.tables += 1
        return {origin: origin for origin in _KEY_COLUMNS.values()} if table == _BASE_TABLE else {}

    def _check_clauses(self, source: exp.Expr) -> None:
        """Rejects the clauses that a table or a subquery may have in addition to its name, such as a sample."""
        self._check_alias(source)
        clauses = [name for name, value in source.args.items() if value and name not in _SOURCE_CLAUSES]
        self.violations += [_OPERATORS.get(name, name) for name in clauses]

    def _check_alias(self, source: exp.Expr) -> None:
        """Rejects an alias that renames columns: their origins would be those of other columns."""
        if source.alias_column_names:
            self.violations.append("a list of column names")

    # --- Expressions ---

    def _check_expression(self, expression: exp.Expr, ctes: Mapping[str, Origins]) -> None:
        """Finds the parts of an expression that do not depend on the row alone."""
        for node in expression.walk(prune=lambda node: isinstance(node, exp.Query)):
            if isinstance(node, exp.Query):
                self.violations.append("a subquery")
                violations = list(self.violations)
                self._check_query(node, ctes)
                self.violations = violations
            elif isinstance(node, exp.Window):
                self.violations.append("Window")
            elif isinstance(node, exp.Literal | exp.RawString):
                self._check_literal(node)
            elif _VARYING_FUNCTION.fullmatch(name := _get_function_name(node)):
                self.violations.append(name)
            elif _is_aggregate(node) or (isinstance(node, exp.Anonymous) and self.is_aggregate(name)):
                self.violations.append("Aggregate")

    def _check_literal(self, node: exp.Literal | exp.RawString) -> None:
        """Rejects a text that Spark may take for a date relative to the run: not a map's key, nor a column's value."""
        match = _RELATIVE_DATE.fullmatch(node.name) if node.is_string or isinstance(node, exp.RawString) else None
        if match and not isinstance(node.parent, exp.Bracket | exp.Alias | exp.Select):
            self.violations.append(f"'{match[1]}'")


def _parse_query(sql: str) -> exp.Expr:
    try:
        query = sqlglot.parse_one(sql.rstrip("; \n"), read="spark")
    except SqlglotError as error:
        raise UnreadableQuery(_describe_first_error(error)) from None
    except AttributeError:  # of sqlglot, for a clause after `|>`
        raise UnreadableQuery("sqlglot does not know a part of it") from None
    return query


def _describe_first_error(error: SqlglotError) -> str:
    """What sqlglot did not expect, and where; without the query."""
    details = error.errors[0] if isinstance(error, ParseError) and error.errors else {}
    return f"{details['description']}, line {details['line']}" if details else "invalid characters"


def _list_lateral_columns(lateral: exp.Lateral) -> list[str]:
    """The columns that a generator adds."""
    alias = lateral.args.get("alias")
    return [column.name.lower() for column in alias.columns] if alias else []


def _find_origin(expression: exp.Expr, origins: Origins) -> str:
    """The column of `row_state` whose value an expression is, also by a cast to its type; empty if it is none."""
    if isinstance(expression, exp.Cast) and expression.to.this in (exp.DataType.Type.TEXT, exp.DataType.Type.BIGINT):
        expression = expression.this
    if isinstance(expression, exp.Column):
        return origins.get(expression.name.lower(), "")
    is_copy = origins.get("row_key") == "row_key" and expression == sqlglot.parse_one(_COPY_KEY, read="spark")
    return "row_key" if is_copy and origins.get("copy") == "" else ""


def _is_aggregate(node: exp.Expr) -> bool:
    """Whether sqlglot knows a function as an aggregate; `like any (...)` is none."""
    return isinstance(node, exp.AggFunc) or (isinstance(node, exp.Any) and not isinstance(node.parent, exp.Predicate))


def _get_function_name(node: exp.Expr) -> str:
    """The name of a function, also of one without parentheses; empty for other nodes."""
    if isinstance(node, exp.StrToUnix) and not node.this:
        return "current_timestamp"  # unix_timestamp()
    if isinstance(node, exp.Anonymous):
        return str(node.name).lower()
    if isinstance(node, exp.Func):
        return node.sql_name().lower()
    is_bare = isinstance(node, exp.Column) and not node.table
    return node.name.lower() if is_bare and node.name.lower() in {"localtimestamp", "session_user", "user"} else ""
