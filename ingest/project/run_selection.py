"""What a run of the run loop builds: Tidemark's nodes and what they need, not the project's other models."""

from collections.abc import Iterable, Sequence
from typing import Any

from dbt.contracts.graph.manifest import Manifest

from ingest.codegen.staging_files import KEY_TAG
from ingest.project.dbt_package import NAME

# The materializations that keep rows and an op log.
DEFINITIONS = ("bucket", "bucket_lookup")


def select_nodes(manifest: Manifest, *, deployed: bool, others: Sequence[str] = ()) -> list[str]:
    """Options of `dbt build` for the package's models, staging views, definitions, all that these read, and the data
    tests of these.

    deployed: without views and seeds, which an earlier run of the same project has built. others: further selectors.
    """
    nodes: Any = manifest.nodes
    chosen = _with_ancestors(nodes, [key for key, node in nodes.items() if _is_tidemarks(node)])
    tests = {
        key
        for key, node in nodes.items()
        if node.resource_type == "test"
        and KEY_TAG not in node.tags
        and (read := _parents(nodes, node))
        and chosen.issuperset(read)
    }
    built = {key for key in chosen if not (deployed and _is_built_once(nodes[key]))}
    selectors = sorted(f"fqn:{'.'.join(nodes[key].fqn)}" for key in built | tests)
    # Of the tests that are not named here, only those that read nothing else run.
    return [
        "--indirect-selection",
        "buildable",
        "--exclude",
        "resource_type:unit_test",
        "--select",
        *selectors,
        *others,
    ]


def _is_tidemarks(node: Any) -> bool:
    if node.resource_type != "model":
        return False
    is_staging = node.config.materialized == "view" and {"source", "table"} <= set(node.config.meta)
    return bool(node.package_name == NAME or node.config.materialized in DEFINITIONS or is_staging)


def _is_built_once(node: Any) -> bool:
    return bool(node.resource_type == "seed" or node.config.materialized == "view")


def _with_ancestors(nodes: Any, keys: Iterable[str]) -> set[str]:
    left, found = list(keys), set()
    while left:
        key = left.pop()
        if key not in found:
            found.add(key)
            left += _parents(nodes, nodes[key])
    return found


def _parents(nodes: Any, node: Any) -> list[str]:
    """The nodes that a node reads; sources are not nodes."""
    return [key for key in node.depends_on.nodes if key in nodes]
