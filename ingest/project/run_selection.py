"""What a run of the run loop builds: Tidemark's nodes and what they need, not the project's other models."""

from collections.abc import Iterable, Sequence
from typing import Any

from dbt.contracts.graph.manifest import Manifest

from ingest.project.dbt_package import DEFINITIONS, KEY_TAG, NAME


def select_nodes(manifest: Manifest, *, deployed: bool, others: Sequence[str] = ()) -> list[str]:
    """Options of `dbt build` for the package's models, staging views, definitions, everything that these read, and the
    data tests of all of them.

    deployed: without views and seeds, which an earlier run of the same project has built. others: further selectors.
    """
    nodes: Any = manifest.nodes
    selected_keys = _add_ancestors(nodes, [key for key, node in nodes.items() if _is_tidemark_node(node)])
    test_keys = {
        key
        for key, node in nodes.items()
        if node.resource_type == "test"
        and KEY_TAG not in node.tags
        and (parents := _list_parents(nodes, node))
        and selected_keys.issuperset(parents)
    }
    built_keys = {key for key in selected_keys if not (deployed and _is_built_once(nodes[key]))}
    selectors = sorted(f"fqn:{'.'.join(nodes[key].fqn)}" for key in built_keys | test_keys)
    # A test that is not named here runs only if it reads none but the selected nodes.
    return [
        "--indirect-selection",
        "buildable",
        "--exclude",
        "resource_type:unit_test",
        "--select",
        *selectors,
        *others,
    ]


def _is_tidemark_node(node: Any) -> bool:
    if node.resource_type != "model":
        return False
    is_staging = node.config.materialized == "view" and {"source", "table"} <= set(node.config.meta)
    return bool(node.package_name == NAME or node.config.materialized in DEFINITIONS or is_staging)


def _is_built_once(node: Any) -> bool:
    return bool(node.resource_type == "seed" or node.config.materialized == "view")


def _add_ancestors(nodes: Any, keys: Iterable[str]) -> set[str]:
    keys_to_visit, visited_keys = list(keys), set()
    while keys_to_visit:
        key = keys_to_visit.pop()
        if key not in visited_keys:
            visited_keys.add(key)
            keys_to_visit += _list_parents(nodes, nodes[key])
    return visited_keys


def _list_parents(nodes: Any, node: Any) -> list[str]:
    """The nodes that a node reads; sources are not nodes."""
    return [key for key in node.depends_on.nodes if key in nodes]
