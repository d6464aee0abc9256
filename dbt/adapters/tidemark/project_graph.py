"""The nodes of dbt's graph: which are Tidemark's, and what they depend on. Pure.

A node is a dictionary, as in dbt's `graph.nodes`.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from dbt_common.exceptions import CompilationError

Node = Mapping[str, Any]
Inputs = list[dict[str, str]]

# Models of `core` that no release names: two of them publish all models, the third has the models that published
# nothing.
_UNPUBLISHED_MODELS = ("model_watermarks", "releases", "model_states")
_ROWS_CALL = re.compile(r"(?<![\w.])rows *\(")
_SELECT_VIEWS_FIX = "Select from staging views, and views of them"


def definition_error(model: Node, problem: str, fix: str) -> CompilationError:
    """The error about a definition: the problem, its file and the fix. `tidemark check` parses this form."""
    return CompilationError(f"{problem} ({model['original_file_path']}). {fix}.")


def materialization(node: Node) -> str:
    """A node's materialization; empty for a node without one."""
    return str(node.get("config", {}).get("materialized") or "")


def meta(node: Node) -> dict[str, Any]:
    """A node's `meta`."""
    return dict(node.get("config", {}).get("meta") or {})


def is_lookup(node: Node) -> bool:
    """Whether a model is a lookup."""
    return materialization(node) == "bucket_lookup"


def is_definition(node: Node) -> bool:
    """Whether a node is a definition: a model with rows and an op log."""
    return node.get("resource_type") == "model" and materialization(node) in {"bucket", "bucket_lookup"}


def is_ledger(node: Node) -> bool:
    """Whether a node is a model of `core`: an incremental model of the strategy `ledger`."""
    strategy = node.get("config", {}).get("incremental_strategy")
    return node.get("resource_type") == "model" and materialization(node) == "incremental" and strategy == "ledger"


def is_published(node: Node) -> bool:
    """Whether a node is a model whose tables are staged, and published by a release."""
    return is_definition(node) or (is_ledger(node) and node["name"] not in _UNPUBLISHED_MODELS)


def model_tables(node: Node) -> list[str]:
    """The tables of a model: its own, and a definition's op log."""
    table = f"{node['schema']}.{node['alias']}"
    return [table, f"{table}__ops"] if is_definition(node) else [table]


class ProjectGraph:
    """dbt's graph, and the nodes that this invocation selects, by unique id."""

    def __init__(self, graph: Mapping[str, Any], selected: Collection[str]) -> None:
        self.nodes: Mapping[str, Node] = graph.get("nodes", {})
        self.selected = frozenset(selected)
        self._ancestors: dict[str, frozenset[str]] = {}

    def ancestors(self, unique_id: str) -> frozenset[str]:
        """All nodes that a node depends on, directly or not."""
        if unique_id not in self._ancestors:
            parents = _list_parents(self.nodes.get(unique_id, {}))
            self._ancestors[unique_id] = frozenset(parents).union(*map(self.ancestors, parents))
        return self._ancestors[unique_id]

    def tested(self, parents: Collection[str]) -> set[str]:
        """The nodes that a test with these parents tests: those that are no ancestor of another of them.

        A test that a bucket's rows have a customer tests the bucket, not the view of customers.
        """
        return set(parents).difference(*map(self.ancestors, parents))

    def definitions(self) -> list[Node]:
        """All definitions."""
        return [node for node in self.nodes.values() if is_definition(node)]

    def check_core_models(self) -> None:
        """Rejects settings of the project that change how the models of `core` are built.

        dbt also applies settings to a package that a project writes above the names of all projects.
        """
        for node in self.nodes.values():
            if node.get("package_name") != "tidemark" or node.get("resource_type") != "model":
                continue
            has_key = bool(node["config"].get("unique_key"))
            if not is_ledger(node) or has_key != (node["name"] == "row_state"):
                raise CompilationError(
                    f"Nothing was done: the settings in dbt_project.yml change how core.{node['name']} is built. Put "
                    "+materialized, +incremental_strategy and +unique_key below the project's name."
                )
            (table,) = model_tables(node)
            if table != f"core.{node['name']}":
                raise CompilationError(
                    f"Nothing was done: core.{node['name']} is {table} by the settings in dbt_project.yml. Put +schema "
                    "and +alias below the project's name."
                )

    def reject_empty_and_sample(self) -> None:
        """Rejects `--empty` and `--sample` for Tidemark's models: the rows that they leave out would be taken for
        deleted rows.
        """
        for unique_id in sorted(self.selected):
            if is_published(self.nodes.get(unique_id, {})):
                raise CompilationError(
                    "Nothing was done: with --empty or --sample the rows left out would be taken for deleted rows "
                    f"({unique_id}). Run without these options."
                )

    def upstream(self, model: Node) -> list[Node]:
        """The nodes that a definition reads, sorted by id: views and the nodes between them, seeds.

        Neither the models of `core` nor the definition that a lookup names are among them.
        """
        upstream_nodes: dict[str, Node] = {}
        nodes_to_visit = [model]
        while nodes_to_visit:
            node = nodes_to_visit.pop()
            for unique_id in _list_parents(node):
                parent = self.nodes.get(unique_id)
                if parent is None or unique_id in upstream_nodes or is_ledger(parent):
                    continue
                if node is model and is_lookup(model) and parent["name"] == meta(model).get("bucket"):
                    continue
                upstream_nodes[unique_id] = parent
                nodes_to_visit.append(parent)
        return [upstream_nodes[unique_id] for unique_id in sorted(upstream_nodes)]

    def inputs(self, model: Node) -> Inputs:
        """The source tables below a definition, as {source, table}. Rejects inputs whose changes are not tracked."""
        inputs: Inputs = []
        for node in [model, *self.upstream(model)]:
            is_staging = materialization(node) == "view" and bool(meta(node).get("table"))
            if is_staging:
                table = _get_shown_table(model, node)
                if table not in inputs:
                    inputs.append(table)
            elif (
                node is not model
                and node["resource_type"] != "seed"
                and materialization(node) not in {"view", "ephemeral"}
            ):
                raise definition_error(
                    model, f"reads '{node['name']}', whose changes are not tracked", _SELECT_VIEWS_FIX
                )
            self._reject_direct_reads(model, node, is_staging=is_staging)
        if not inputs and _ROWS_CALL.search(model["raw_code"]):
            problem = "dbt does not know rows(...) without its package"
            raise definition_error(model, problem, "Write tidemark.rows(...)")
        if not inputs:
            fix = "Select from one: its meta.source and meta.table name its table"
            raise definition_error(model, "reads no staging view", fix)
        if meta(model).get("evaluation") == "incremental" and len(inputs) > 1:
            tables = ", ".join(table["table"] for table in inputs)
            problem = f"evaluation: 'incremental' depends on {len(inputs)} tables, {tables}"
            raise definition_error(model, problem, "Set evaluation: 'full', or ref only the view of rows(...)")
        return inputs

    def _reject_direct_reads(self, model: Node, node: Node, *, is_staging: bool) -> None:
        """Rejects a source or a model of `core` as an input. A staging view reads `row_state`, and names its table as a
        dbt source, which has the name of its source.
        """
        for unique_id in _list_parents(node):
            parent = self.nodes.get(unique_id, {})
            reads_core = is_ledger(parent)
            is_source = unique_id.startswith("source.")
            is_own_source = is_staging and unique_id.split(".")[2] == meta(node).get("source")
            if (is_source and not is_own_source) or (reads_core and not (is_staging and parent["name"] == "row_state")):
                prefix = "reads " if node is model else f"reads '{node['name']}', which reads "
                raise definition_error(
                    model, f"{prefix}{parent['name'] if reads_core else unique_id} directly", _SELECT_VIEWS_FIX
                )

    def view_tables(self, model: Node) -> dict[str, str]:
        """The table that each staging view below a definition shows, as {view: `<source>.<table>`}."""
        views = [node for node in self.upstream(model) if meta(node).get("table")]
        return {view["name"]: f"{meta(view).get('source')}.{meta(view)['table']}" for view in views}

    def check_view_tables(self, model: Node, published_tables: Mapping[str, str]) -> None:
        """Rejects a definition if a staging view below it shows another table than when the definition was published.

        Its rows would be replaced by those of the other table. To allow this, set `replaces` in the `meta` of the view.
        """
        shown_tables = self.view_tables(model)
        for view in self.upstream(model):
            name = view["name"]
            published_table = published_tables.get(name)
            if name in shown_tables and published_table not in (None, shown_tables[name], meta(view).get("replaces")):
                raise definition_error(
                    model,
                    f"{name} shows {shown_tables[name]}, but {published_table} when {model['name']} was published",
                    "Read a view of the intended table, or accept the other table: "
                    f"set meta.replaces of the view to '{published_table}'",
                )


def _list_parents(node: Node) -> list[str]:
    return list(node.get("depends_on", {}).get("nodes", []))


def _get_shown_table(model: Node, view: Node) -> dict[str, str]:
    if not meta(view).get("source"):
        problem = f"reads '{view['name']}', which has meta.table, but no meta.source"
        raise definition_error(model, problem, "Set meta.source to its source in sources.yml")
    return {"source": meta(view)["source"], "table": meta(view)["table"]}


def names(nodes: Iterable[Node]) -> set[str]:
    """The names of nodes."""
    return {node["name"] for node in nodes}
