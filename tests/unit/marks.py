"""All tests and their `slow` marks, read from the syntax of the files without importing them."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Test:
    """slow: excluded from `make test`. slow_values, quick_values: the excluded and the included parameters, if some
    are excluded.
    """

    slow: bool
    slow_values: frozenset[object] = frozenset()
    quick_values: frozenset[object] = frozenset()


@dataclass
class Marks:
    """The marks of one file. unreasoned: the lines with a `slow` mark without a reason."""

    tests: dict[str, Test] = field(default_factory=dict)
    unreasoned: list[int] = field(default_factory=list)


@cache
def read(file: Path) -> Marks:
    """The tests and marks of a file."""
    module = ast.parse(file.read_text())
    reasoned = {id(node.func) for node in ast.walk(module) if isinstance(node, ast.Call) and _reason(node)}
    marks = Marks(unreasoned=[n.lineno for n in ast.walk(module) if _is_mark(n) and id(n) not in reasoned])  # type: ignore[attr-defined]
    names = {
        target.id
        for node in module.body
        if isinstance(node, ast.Assign) and any(map(_is_mark, ast.walk(node.value)))
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in module.body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            marks.tests[node.name] = _test(node, names)
    return marks


def problem(named: str, root: Path = ROOT) -> str | None:
    """The error in the name of a test that should be in `make test`.

    A name is `file::name`, or `file::name[value]` if other values of a parameter are excluded.
    """
    file, _, name = named.rstrip("]").partition("::")
    name, _, value = name.partition("[")
    if not (root / file).is_file() or not (test := read(root / file).tests.get(name)):
        return f"{named} does not exist"
    if value and value not in map(str, test.quick_values | test.slow_values):
        return f"{named} does not exist"
    left_out = value not in map(str, test.quick_values) if value else test.slow_values
    return f"{named} is marked slow, so it is not in `make test`" if test.slow or left_out else None


def _test(function: ast.FunctionDef, names: set[str]) -> Test:
    slow = "pytestmark" in names
    values: dict[bool, set[object]] = {True: set(), False: set()}
    for decorator in function.decorator_list:
        parameters = list(_parameters(decorator))
        slow |= not parameters and _is_slow(decorator, names)
        if any(_is_slow(parameter_set, names) for parameter_set in parameters):
            for parameter_set in parameters:
                constants = {part.value for part in ast.walk(parameter_set) if isinstance(part, ast.Constant)}
                values[_is_slow(parameter_set, names)] |= constants
    return Test(slow, frozenset(values[True]), frozenset(values[False]))


def _parameters(decorator: ast.expr) -> Iterator[ast.expr]:
    """The parameter sets of `@pytest.mark.parametrize`."""
    if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.parametrize":
        for argument in decorator.args[1:]:
            yield from argument.elts if isinstance(argument, ast.List | ast.Tuple) else [argument]


def _is_slow(tree: ast.AST, names: set[str]) -> bool:
    return any(_is_mark(node) or (isinstance(node, ast.Name) and node.id in names) for node in ast.walk(tree))


def _is_mark(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "slow" and ast.unparse(node) == "pytest.mark.slow"


def _reason(call: ast.Call) -> str:
    reasons = [k.value for k in call.keywords if k.arg == "reason"]
    return "".join(str(v.value).strip() for v in reasons if isinstance(v, ast.Constant))
