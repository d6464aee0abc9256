"""Reads a YAML file into plain values and keeps the line of each, for error messages.

Stricter than YAML: keys are text and unique. `${NAME}` in a text value is replaced by that environment
variable (`$${` is a literal `${`). Expansion happens after parsing, so a value can't change the structure.
No error contains a value, because an expanded value may be a secret.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from ingest.common.errors import UsageError

KeyPath = tuple[str | int, ...]

_VARIABLE_REFERENCE = re.compile(r"\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_]*)\}|\$\{")


@dataclass(frozen=True)
class YamlDocument:
    """A parsed file: `data`, and the line (from 1) of every key path."""

    path: Path
    data: Any
    lines: dict[KeyPath, int] = field(repr=False)

    def where(self, keys: KeyPath) -> str:
        """`file:line key.path` of `keys`, with the line of the nearest enclosing value in the file."""
        nearest_keys = keys
        while nearest_keys and nearest_keys not in self.lines:
            nearest_keys = nearest_keys[:-1]
        dotted_keys = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys)
        return f"{self.path}:{self.lines.get(nearest_keys, 1)} {dotted_keys.lstrip('.')}".rstrip()


def read_yaml(path: Path, environment: Mapping[str, str] | None = None) -> YamlDocument:
    """The values in `path`, `${NAME}` taken from `environment` (else the process's).

    Raises UsageError if the file can't be read, is not YAML, has a duplicate key, or refers to an unset variable.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UsageError("no such file", str(path), "Name it with --sources, or write one") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise UsageError("can't read the file", f"{path} ({reason})") from None
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        walker = _NodeConverter(path, loader, os.environ if environment is None else environment)
        data = None if node is None else walker.convert(node, ())
    except yaml.YAMLError as error:
        raise syntax_error(path, error) from None
    except RecursionError:
        raise UsageError(
            "no valid settings (nested too deep)", str(path), "docs/reference/configuration.md shows how"
        ) from None
    return YamlDocument(path, data, walker.lines)


def syntax_error(path: Path, error: yaml.YAMLError) -> UsageError:
    """The error for a file that is not YAML: the location, without any content of the file."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        # A ComposerError quotes the file's content, which may be a password.
        problem = "unknown or repeated anchor" if isinstance(error, yaml.composer.ComposerError) else error.problem
        return UsageError(f"no valid YAML ({problem})", f"{path}:{error.problem_mark.line + 1}", "Fix the line")
    return UsageError("no valid YAML (a character that YAML does not allow)", str(path), "Remove it")


class _NodeConverter:
    """Converts YAML nodes into values, and stores their lines."""

    def __init__(self, path: Path, loader: yaml.SafeLoader, environment: Mapping[str, str]) -> None:
        self.lines: dict[KeyPath, int] = {}
        self._path = path
        self._loader = loader
        self._environment = environment
        self._open_nodes: set[int] = set()

    def convert(self, node: yaml.Node, keys: KeyPath) -> Any:
        self.lines.setdefault(keys, node.start_mark.line + 1)
        if isinstance(node, yaml.ScalarNode):
            value = self._construct_scalar(node)
            return self._expand(value, keys) if isinstance(value, str) else value
        if id(node) in self._open_nodes:
            raise UsageError("a value that contains itself", self._describe_location(node, keys), "Remove the alias")
        self._open_nodes.add(id(node))
        try:
            if isinstance(node, yaml.MappingNode):
                return self._convert_mapping(node, keys)
            return [self.convert(item, (*keys, index)) for index, item in enumerate(node.value)]
        finally:
            self._open_nodes.discard(id(node))

    def _convert_mapping(self, node: yaml.MappingNode, keys: KeyPath) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = self._construct_scalar(key_node) if isinstance(key_node, yaml.ScalarNode) else None
            if not isinstance(key, str):
                raise UsageError("a key that is not text", self._describe_location(key_node, keys), "Put it in quotes")
            if key in result:
                raise UsageError(f"duplicate key {key!r}", self._describe_location(key_node, keys), "Keep one of them")
            self.lines[(*keys, key)] = key_node.start_mark.line + 1
            result[key] = self.convert(value_node, (*keys, key))
        return result

    def _construct_scalar(self, node: yaml.ScalarNode) -> Any:
        try:
            return self._loader.construct_object(node)
        except ValueError:  # such as a date that does not exist
            raise UsageError(
                "a value that can't be read", self._describe_location(node, ()), "Put it in quotes"
            ) from None

    def _expand(self, text: str, keys: KeyPath) -> str:
        def expand_reference(match: re.Match[str]) -> str:
            if match[0] == "$${":
                return "${"
            name = match[1]
            if name is None:
                raise UsageError(
                    "${ without a variable's name and }",
                    self._describe_location(None, keys),
                    "Write ${NAME}, or $${ for a literal ${",
                )
            if name not in self._environment:
                raise UsageError(
                    f"environment variable {name} is not set",
                    self._describe_location(None, keys),
                    f"Set it: export {name}=...",
                )
            return self._environment[name]

        return _VARIABLE_REFERENCE.sub(expand_reference, text)

    def _describe_location(self, node: yaml.Node | None, keys: KeyPath) -> str:
        line = self.lines[keys] if node is None else node.start_mark.line + 1
        return f"{self._path}:{line} {'.'.join(map(str, keys))}".rstrip()
