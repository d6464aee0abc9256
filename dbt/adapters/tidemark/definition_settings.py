"""The settings of definitions, from their `meta`. An error names the key and the fix. Pure."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from dbt.adapters.tidemark.project_graph import Node, ProjectGraph, definition_error, is_ledger, is_lookup, meta
from dbt.adapters.tidemark.sql_text import names_model

_EVALUATIONS = ("incremental", "full")
_BUCKET_KEYS = ("bucket_by", "object_type", "object_id", "evaluation", "unique_key")
_LOOKUP_KEYS = ("parameters", "bucket")


@dataclass(frozen=True)
class DefinitionSettings:
    """The values from which a definition's statements are rendered. named_by: the columns that name its buckets; of a
    lookup, those that name the buckets of its definition.
    """

    name: str
    named_by: list[str]
    bucket_by: list[str]
    object_type: str
    object_id: str
    evaluation: str
    unique_key: list[str]


def definition_settings(model: Node, graph: ProjectGraph) -> DefinitionSettings:
    """The checked settings of a definition of either kind.

    Its name must be no model's of `core`: watermarks and releases name models without their package.
    """
    if any(is_ledger(node) and node["name"] == model["name"] for node in graph.nodes.values()):
        problem = f"the name '{model['name']}' is that of a model of core"
        raise definition_error(model, problem, "Give the model another name")
    return lookup_settings(model, graph) if is_lookup(model) else bucket_settings(model)


def bucket_settings(model: Node) -> DefinitionSettings:
    """The checked settings of a bucket model."""
    settings = meta(model)
    _reject_misspelled_keys(model, settings, _BUCKET_KEYS)
    evaluation = settings.get("evaluation", "full")
    if evaluation not in _EVALUATIONS:
        raise definition_error(model, f"meta.evaluation is '{evaluation}'", "Set it to 'incremental' or 'full'")
    _check_model(model)
    if not _is_name_list(settings.get("bucket_by")):
        fix = "List the columns that identify a bucket; [] makes one global bucket"
        raise definition_error(model, "meta.bucket_by is missing or not a list of names", fix)
    if not _is_name(settings.get("object_id")):
        fix = "Set it to the column with the id of the object"
        raise definition_error(model, "meta.object_id is missing or not a name", fix)
    object_type = settings.get("object_type", model["name"])
    if not _is_name(object_type):
        raise definition_error(model, "meta.object_type is not a name", "Remove it: the default is the model's name")
    unique_key = settings.get("unique_key")
    if evaluation == "full" and not (unique_key and _is_name_list(unique_key)):
        fix = "List the columns that identify a row of the query, or set evaluation: 'incremental'"
        raise definition_error(model, "meta.unique_key is missing or not a list of names", fix)
    if evaluation == "incremental" and unique_key:
        problem = "meta.unique_key does not go with evaluation: 'incremental'"
        raise definition_error(model, problem, "Remove it: the key is _row_key")
    return DefinitionSettings(
        name=model["alias"],
        named_by=settings["bucket_by"],
        bucket_by=settings["bucket_by"],
        object_type=str(object_type),
        object_id=settings["object_id"],
        evaluation=evaluation,
        unique_key=unique_key or [],
    )


def lookup_settings(model: Node, graph: ProjectGraph) -> DefinitionSettings:
    """The checked settings of a lookup, in the form of a bucket's."""
    settings = meta(model)
    _reject_misspelled_keys(model, settings, _LOOKUP_KEYS)
    _check_model(model)
    if not _is_name_list(settings.get("parameters")):
        fix = "List the columns that a request gives; [] is for all readers"
        raise definition_error(model, "meta.parameters is missing or not a list of names", fix)
    definition = find_definition(model, graph)
    name = definition["name"]
    if definition["unique_id"] not in model["depends_on"]["nodes"]:
        fix = f"Add the line -- depends_on: {{{{ ref('{name}') }}}}, so that dbt runs the definition first"
        raise definition_error(model, f"does not depend on '{name}'", fix)
    if names_model(model.get("compiled_code") or model["raw_code"], name, definition["schema"]):
        fix = "Select from staging views, and name the definition in a comment only"
        raise definition_error(model, f"reads '{name}', whose changes are not tracked", fix)
    return DefinitionSettings(
        name=model["alias"],
        named_by=bucket_settings(definition).bucket_by,
        bucket_by=settings["parameters"],
        object_type="bucket",
        object_id="bucket_name",
        evaluation="full",
        unique_key=[*settings["parameters"], "bucket_name"],
    )


def find_definition(lookup: Node, graph: ProjectGraph) -> Node:
    """The definition whose buckets a lookup names."""
    name = meta(lookup).get("bucket")
    for node in graph.definitions():
        if node["name"] == name and not is_lookup(node):
            return node
    raise definition_error(lookup, f"meta.bucket is '{name}', which is not a definition", "Name a bucket model")


def check_lookup_columns(lookup: Node, graph: ProjectGraph, selected: list[str]) -> None:
    """Rejects a lookup whose query, with the columns `selected`, lacks a required column."""
    definition = bucket_settings(find_definition(lookup, graph))
    known_names = {name.lower() for name in selected}
    for name in [*meta(lookup)["parameters"], *definition.bucket_by]:
        if name.lower() not in known_names:
            raise definition_error(
                lookup,
                f"does not select '{name}'",
                f"A lookup selects its parameters and the bucket_by of {definition.name}; "
                f"this one selects {', '.join(sorted(known_names))}",
            )


def _reject_misspelled_keys(model: Node, keys: Collection[str], known_keys: Sequence[str]) -> None:
    """`meta` may have keys of other tools, such as `owner`, but none that is almost a key of a definition."""
    for key in keys:
        if key not in known_keys and (similar_keys := get_close_matches(key, known_keys, n=1)):
            raise definition_error(model, f"meta has an unknown key '{key}'", f"Did you mean {similar_keys[0]}?")


def _check_model(model: Node) -> None:
    """Rejects a model whose tables would not be `<name>` and `<name>__ops` of its schema: others rely on this."""
    name = model["name"]
    if name.endswith("__ops"):
        raise definition_error(model, "the name ends in __ops, as an op log's does", "Give the model another name")
    if not re.fullmatch("[a-z_][a-z0-9_]*", name):
        problem = f"the name '{name}' may only have lower-case letters, digits and _"
        raise definition_error(model, problem, "Give the model another name")
    if model.get("version") is not None:
        raise definition_error(model, "definitions do not support versions", "Make each version a separate model")
    if model["alias"] != name:
        problem = f"the alias is '{model['alias']}', but a definition's tables have its name"
        raise definition_error(model, problem, "Remove the alias")
    contract_types(model)


def contract_types(model: Node) -> dict[str, str]:
    """The types of the columns in an enforced model contract, by name; none if the model has no such contract."""
    if not (model["config"].get("contract") or {}).get("enforced"):
        return {}
    types = {column["name"]: column.get("data_type") for column in model.get("columns", {}).values()}
    if not types:
        raise definition_error(model, "has a contract without columns", "List them in the model's properties")
    for name, data_type in types.items():
        if not data_type:
            problem = f"has a contract without a data_type for the column '{name}'"
            raise definition_error(model, problem, "Add the type")
    return types


def _is_name_list(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_name, value))


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and value != ""
