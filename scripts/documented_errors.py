"""Finds the errors that a user may see: raised as TidemarkError in Python, or by macros while dbt compiles.

Texts are rebuilt from the code: literals are kept, a local name or a function with one text is followed, and each
other expression is `...`.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from dbt_common.clients.jinja import get_environment
from jinja2 import nodes

_CLASSES = {"UsageError", "Failure", "Unavailable", "SourceUnavailable", "CatalogUnavailable", "ConcurrentPublishError"}
# Area of the page by the first folder that matches.
_AREAS = {
    "ingest/config": "Configuration",
    "ingest/sources/postgres": "Postgres",
    "ingest/sources/mongodb": "MongoDB",
    "ingest/sources": "Sources",
    "ingest/snapshot": "Snapshots",
    "ingest/stream": "Streams",
    "ingest/positions": "Streams",
    "ingest/lake": "Lake, catalog and Spark",
    "ingest/common": "Lake, catalog and Spark",
    "ingest/project": "dbt project and runs",
    "ingest/pipeline": "dbt project and runs",
    "dbt/adapters/tidemark/releases.py": "dbt project and runs",
    "dbt/adapters/tidemark/run_state.py": "dbt project and runs",
    "dbt": "Definitions",
    "macros/bucket": "Definitions",
    "macros": "dbt project and runs",
    "ingest/commands": "Commands",
    "ingest/cli": "Commands",
    "ingest/codegen": "Commands",
}
UNKNOWN = "..."


def find_errors(root: Path) -> dict[str, list[tuple[str, str]]]:
    """{area: (what, fix) of each of its errors, sorted}."""
    errors_by_area: dict[str, set[tuple[str, str]]] = {area: set() for area in _AREAS.values()}
    functions = _Functions(root)
    for folder, area in _AREAS.items():
        for path in [root / folder, *(root / folder).rglob("*")]:
            if _find_area(path.relative_to(root)) != area:
                continue
            errors = functions.errors_in(path) if path.suffix == ".py" else _find_macro_errors(path)
            errors_by_area[area] |= {(what, fix) for what, fix in errors if what.strip(". ()")}
    return {
        area: sorted(errors, key=lambda error: (error[0].lower(), error))
        for area, errors in errors_by_area.items()
        if errors
    }


def _find_area(path: Path) -> str:
    return next((area for folder, area in _AREAS.items() if path.is_relative_to(folder)), "")


def _clean_text(text: str) -> str:
    text = " ".join(text.split())
    return re.sub(r"(\.\.\.)(, \.\.\.)+", UNKNOWN, text).rstrip()


def _format_what(text: str) -> str:
    return _clean_text(text).replace("`", "'")


def _format_fix(text: str) -> str:
    text = _clean_text(text)
    if text.strip(". ") == "":
        return ""
    # Outside of backticks, what Markdown would read as markup is escaped.
    parts = re.split(r"(`[^`]*`)", text)
    text = "".join(part if part[:1] == "`" else re.sub(r"([*<\[\]_])", r"\\\1", part) for part in parts)
    return text if text.endswith((".", "?", "!")) else f"{text}."


class _Functions:
    """The texts of the functions that return one, by name, for errors that call them."""

    def __init__(self, root: Path) -> None:
        self._trees = {
            path: ast.parse(path.read_text())
            for folder in ("ingest", "dbt")
            for path in sorted((root / folder).rglob("*.py"))
        }
        self._returned_texts: dict[str, ast.expr] = {}
        self._constants: dict[str, ast.expr] = {}
        for tree in self._trees.values():
            for node in ast.walk(tree):
                if isinstance(node, ast.FunctionDef) and len(returned_texts := _find_returned_texts(node)) == 1:
                    self._returned_texts[node.name] = returned_texts[0]
            for node in tree.body:
                if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                    self._constants[node.targets[0].id] = node.value

    def errors_in(self, path: Path) -> Iterator[tuple[str, str]]:
        """(what, fix) of the errors that a module creates."""
        for scope in [node for node in ast.walk(self._trees[path]) if isinstance(node, ast.FunctionDef)]:
            for node in ast.walk(scope):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
                    names = {**self._constants, **_find_assigned_texts(scope, node.lineno)}
                    yield from _extract_errors(
                        node.func.id, [self._rebuild_text(argument, names) for argument in node.args]
                    )

    def _rebuild_text(self, node: ast.expr, names: Mapping[str, ast.expr], depth: int = 0) -> str:
        if depth > 4:
            return UNKNOWN
        if isinstance(node, ast.Constant):
            return str(node.value)
        if isinstance(node, ast.JoinedStr):
            return "".join(self._rebuild_text(value, names, depth) for value in node.values)
        if isinstance(node, ast.FormattedValue):
            return self._rebuild_text(node.value, {}, depth + 1)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return self._rebuild_text(node.left, names, depth) + self._rebuild_text(node.right, names, depth)
        if isinstance(node, ast.IfExp):
            return self._rebuild_text(node.body, names, depth)
        if isinstance(node, ast.Name) and node.id in names:
            return self._rebuild_text(names[node.id], {}, depth + 1)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            if name in self._returned_texts:
                return self._rebuild_text(self._returned_texts[name], {}, depth + 1)
        return UNKNOWN


def _extract_errors(function: str, texts: list[str]) -> Iterator[tuple[str, str]]:
    """(what, fix) of the error that a call with these texts creates; nothing for another call."""
    if function in _CLASSES:
        yield _format_what(texts[0]), _format_fix(texts[2] if len(texts) > 2 else "")
    elif function == "definition_error":
        yield _format_what(texts[1]), _format_fix(texts[2])
    elif function == "CompilationError":
        what, fix = [*re.split(r"(?<!\.)\. (?=[A-Z])", texts[0], maxsplit=1), ""][:2]
        yield _format_what(what), _format_fix(fix)


def _find_returned_texts(function: ast.FunctionDef) -> list[ast.expr]:
    returned_values = [node.value for node in ast.walk(function) if isinstance(node, ast.Return) and node.value]
    return [text for text in returned_values if isinstance(text, ast.JoinedStr)] if len(returned_values) == 1 else []


def _find_assigned_texts(scope: ast.FunctionDef, line: int) -> dict[str, ast.expr]:
    """By name: the last text that was assigned to it above a line."""
    assignments = [node for node in ast.walk(scope) if isinstance(node, ast.Assign) and node.lineno <= line]
    return {
        node.targets[0].id: node.value
        for node in sorted(assignments, key=lambda node: node.lineno)
        if isinstance(node.targets[0], ast.Name) and isinstance(node.value, ast.Constant | ast.JoinedStr | ast.IfExp)
    }


def _find_macro_errors(path: Path) -> Iterator[tuple[str, str]]:
    if path.suffix != ".sql":
        return
    if "raise_" not in (text := path.read_text()):
        return
    for call in get_environment(None, capture_macros=True).parse(text).find_all(nodes.Call):
        if not isinstance(call.node, nodes.Getattr):
            continue
        if call.node.attr == "raise_compiler_error":
            what, _, fix = _get_jinja_text(call.args[0]).partition(". ")
            yield _format_what(what), _format_fix(fix)


def _get_jinja_text(node: nodes.Node) -> str:
    if isinstance(node, nodes.Const):
        return str(node.value)
    if isinstance(node, nodes.Concat):
        return "".join(map(_get_jinja_text, node.nodes))
    return UNKNOWN
