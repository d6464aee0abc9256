"""A run of the run loop builds Tidemark's nodes and what they read, and no other node of the project."""

from types import SimpleNamespace
from typing import Any

from ingest.project.dbt_package import KEY_TAG
from ingest.project.run_selection import select_nodes


def node(name: str, *parents: str, kind: str = "model", package: str = "acme", **options: Any) -> Any:
    config = SimpleNamespace(materialized=options.pop("materialized", "table"), meta=options.pop("meta", {}))
    return SimpleNamespace(
        resource_type=kind,
        package_name=package,
        fqn=[package, name],
        depends_on=SimpleNamespace(nodes=list(parents)),
        config=config,
        tags=options.pop("tags", []),
    )


NODES = {
    "events": node("events", "source.raw", package="tidemark", materialized="incremental"),
    "staging": node("staging", "events", materialized="view", meta={"source": "shop", "table": "public.t"}),
    "codes": node("codes", kind="seed", materialized="seed"),
    "cleaned": node("cleaned", "staging", "codes", materialized="view"),
    "bucket": node("bucket", "cleaned", materialized="bucket"),
    "mart": node("mart", "bucket", "codes"),
    "own_seed": node("own_seed", kind="seed", materialized="seed"),
    "own_view": node("own_view", "own_seed", materialized="view"),
    "of_bucket": node("of_bucket", "bucket", "staging", kind="test"),
    "of_mart": node("of_mart", "bucket", "mart", kind="test"),
    "of_source": node("of_source", "source.raw", kind="test"),
    "of_key": node("of_key", "staging", kind="test", tags=[KEY_TAG]),
}


def selected(*, deployed: bool) -> set[str]:
    options = select_nodes(SimpleNamespace(nodes=NODES), deployed=deployed)  # type: ignore[arg-type]
    return {each.rpartition(".")[2] for each in options[options.index("--select") + 1 :]}


def test_a_first_run_builds_what_definitions_read() -> None:
    assert selected(deployed=False) == {"events", "staging", "codes", "cleaned", "bucket", "of_bucket"}


def test_later_runs_build_no_view_and_no_seed_but_test_the_data() -> None:
    assert selected(deployed=True) == {"events", "bucket", "of_bucket"}


def test_other_selectors_are_added() -> None:
    options = select_nodes(SimpleNamespace(nodes=NODES), deployed=True, others=["tag:hourly"])  # type: ignore[arg-type]
    assert options[-1] == "tag:hourly"
