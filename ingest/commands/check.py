"""`tidemark check`: problems of the profile, the dbt project, the definitions and the sources.

Changes only dbt's `target/` and log. Starts Spark only if there is a lake: to read the published definitions, and to
test the catalog in a scratch namespace, which is removed. Definitions are checked by the macros, which dbt runs for
each definition.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from dbt.cli.main import dbtRunner
from dbt.contracts.graph.manifest import Manifest
from dbt.contracts.graph.nodes import ModelNode
from dbt_common.events.base_types import EventMsg
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from ingest.common import findings
from ingest.common.errors import Failure, TidemarkError, first_message_line, one_line
from ingest.common.findings import Finding
from ingest.config.sources_file import Settings
from ingest.lake import catalog_capabilities, spark_session
from ingest.lake.cached_reader import CachedReader
from ingest.lake.raw_schema import POSITIONS
from ingest.lake.stream_positions import read_positions
from ingest.positions.position import Position, current_epochs
from ingest.project.dbt_package import DEFINITIONS, check_version
from ingest.project.dbt_project import QUIET_OPTIONS, dbt_options
from ingest.sources import source_kinds


def check_all(settings: Settings, target: str | None = None, folder: Path | str = ".") -> list[Finding]:
    """The findings about all sources and the project. Raises Failure if Spark's Java process ends meanwhile."""
    project = check_project(settings, target, folder)
    # If Spark's Java process has ended, that is the cause of any other error: no definition is to blame.
    if any(finding.level == "error" for finding in project.findings) and (failure := spark_session.find_exit_failure()):
        raise failure
    all_findings: list[Finding] = []
    for name, source in settings.sources.items():
        prefix = f"{name}."
        table_names = {table.removeprefix(prefix) for table in project.required_tables if table.startswith(prefix)}
        slots = {position.slot for position in project.positions if position.source == name}
        all_findings += findings.with_source(name, source_kinds.check(source, settings.settings, table_names, slots))
    return all_findings + project.findings


@dataclass(frozen=True)
class ProjectCheck:
    """required_tables: those that definitions read, as `<source>.<table>`. positions: of the writers, in the lake."""

    findings: list[Finding]
    required_tables: Collection[str] = ()
    positions: Collection[Position] = ()


def check_project(settings: Settings, target: str | None = None, folder: Path | str = ".") -> ProjectCheck:
    """The findings about the Spark profile, the catalog, the dbt project in `folder`, and its definitions."""
    options = dbt_options(target, folder)
    try:
        check_version(Path(folder))
        has_lake = spark_session.has_lake(spark_session.read_settings(target, folder))
    except TidemarkError as error:
        return ProjectCheck([findings.finding_from_error(error)])
    error_collector = _ErrorCollector()
    parse_result = dbtRunner(callbacks=[error_collector]).invoke([*QUIET_OPTIONS, "parse", *options])
    if not isinstance(parse_result.result, Manifest):
        error_line = (
            _shorten_dbt_error(str(parse_result.exception)) if parse_result.exception else error_collector.line()
        )
        finding = Finding("error", f"dbt can't parse it ({error_line})", str(folder), _PARSE_FIX, group="dbt project")
        return ProjectCheck([finding])
    published_tables: dict[str, dict[str, str]] = {}
    catalog_findings = [_CATALOG_NOT_TRIED]
    positions: Collection[Position] = ()
    if has_lake:
        try:
            session = spark_session.open_session(target, folder, is_short_command=True)
            published_tables = _read_published_tables(session)
            positions = _read_positions(session)
        except TidemarkError as error:
            return ProjectCheck([findings.finding_from_error(error)])
        catalog_findings = _check_catalog(session)
    required_tables: set[str] = set()
    for model in _list_definitions(parse_result.result):
        required_tables |= _find_input_tables(parse_result.result, model)
    definition_findings = _check_definitions(settings, parse_result.result, options, published_tables)
    all_findings = [
        *(replace(finding, group="catalog") for finding in catalog_findings),
        *(replace(finding, group="definitions") for finding in definition_findings),
    ]
    return ProjectCheck(all_findings, required_tables, positions)


_CATALOG_NOT_TRIED = Finding(
    "ok",
    "the catalog's file does not exist yet; the first job creates it, and checks namespaces and views",
    "profiles.yml",
)


def _check_catalog(session: SparkSession) -> list[Finding]:
    name = f"catalog {session.catalog.currentCatalog()}"
    return catalog_capabilities.find_missing_capabilities(session) or [
        Finding("ok", "it supports everything that Tidemark needs", name)
    ]


def _read_published_tables(session: SparkSession) -> dict[str, dict[str, str]]:
    """By definition and staging view: the table, as `<source>.<table>`, that the view read when it was published.

    Raises Failure if the lake can't be read.
    """
    with _reading("core.model_watermarks"):
        if not session.catalog.tableExists("core.model_watermarks"):
            return {}
        watermarks = session.table("core.model_watermarks")
        rows = watermarks.where("view_tables is not null").select("model", "view_tables").collect()
    return {row["model"]: json.loads(row["view_tables"]) for row in rows}


def _read_positions(session: SparkSession) -> Collection[Position]:
    """The newest position of each writer. Raises Failure if the lake can't be read."""
    with _reading(POSITIONS):
        if not session.catalog.tableExists(POSITIONS):
            return ()
        return current_epochs(read_positions(CachedReader(session, POSITIONS))).values()


@contextmanager
def _reading(table: str) -> Iterator[None]:
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise Failure(
            f"the lake can't be read ({first_message_line(str(error))})", table, "Check the target"
        ) from error


# Tidemark decides how a definition is stored and compared; its comments and its grants are those of the catalog.
_CONFIGS_WITHOUT_EFFECT = (
    "partition_by",
    "clustered_by",
    "location_root",
    "tblproperties",
    "incremental_strategy",
    "unique_key",
    "persist_docs",
    "grants",
)

_PARSE_FIX = "Fix the error; run `dbt parse` for details"


def _list_definitions(manifest: Manifest) -> list[ModelNode]:
    models = [node for node in manifest.nodes.values() if isinstance(node, ModelNode)]
    return [model for model in models if model.config.materialized in DEFINITIONS]


def _check_definitions(
    settings: Settings, manifest: Manifest, options: list[str], published_tables: Mapping[str, Mapping[str, str]]
) -> Iterator[Finding]:
    definitions = _list_definitions(manifest)
    valid_count = 0
    for model in sorted(definitions, key=lambda model: model.name):
        error_collector = _ErrorCollector()
        arguments = json.dumps({"unique_id": model.unique_id, "published": published_tables.get(model.name, {})})
        operation = ["run-operation", "tidemark.check_definition", "--args", arguments]
        runner = dbtRunner(manifest=manifest, callbacks=[error_collector])
        if not runner.invoke([*QUIET_OPTIONS, *operation, *options]).success:
            yield _parse_refusal(model, error_collector.line())
            continue
        valid_count += 1
        yield from (
            Finding("warning", f"`{key}` has no effect on a definition", model.original_file_path, "Remove it")
            for key in _CONFIGS_WITHOUT_EFFECT
            if model.config.get(key)
        )
        for table in sorted(_find_unselected_tables(settings, manifest, model)):
            yield Finding(
                "warning",
                f"it reads {table}, which sources.yml does not select, and will never be updated",
                model.original_file_path,
                "Correct sources.yml, or `meta` of the staging view",
            )
    if definitions:
        yield Finding("ok", f"{valid_count} of {len(definitions)} are valid", "definitions")
    else:
        message = "there is no definition yet: see docs/guides/definitions.md for how to write one"
        yield Finding("ok", message, "models/buckets")


def _parse_refusal(model: ModelNode, line: str) -> Finding:
    """The error of a definition: the parts of a message of `definition_error`, else the whole line."""
    parts = re.fullmatch(r"(.+?) \((\S+)\)\. (.+)", line)
    if parts:
        return Finding("error", parts[1], parts[2], parts[3])
    return Finding("error", line, model.original_file_path)


def _find_unselected_tables(settings: Settings, manifest: Manifest, model: ModelNode) -> set[str]:
    """The tables that a definition reads, as `<source>.<table>`, and that no source selects."""
    tables = set()
    for full_name in _find_input_tables(manifest, model):
        source_name, _, table = full_name.partition(".")
        source = settings.sources.get(source_name)
        if not (source and source.selects(table)):
            tables.add(full_name)
    return tables


def _find_input_tables(manifest: Manifest, model: ModelNode) -> set[str]:
    """The tables that a definition reads through its views, as `<source>.<table>`."""
    nodes_to_visit, visited_nodes, tables = list(model.depends_on.nodes), set(), set()
    while nodes_to_visit:
        unique_id = nodes_to_visit.pop()
        node = manifest.nodes.get(unique_id)
        if unique_id in visited_nodes or not isinstance(node, ModelNode):
            continue
        visited_nodes.add(unique_id)
        nodes_to_visit += node.depends_on.nodes
        source_name, table = (str(node.config.meta.get(key, "")) for key in ("source", "table"))
        if table:
            tables.add(f"{source_name}.{table}")
    return tables


class _ErrorCollector:
    """Collects dbt's error messages: an invocation does not always return its exceptions."""

    def __init__(self) -> None:
        self._texts: list[str] = []

    def __call__(self, event: EventMsg) -> None:
        if event.info.level == "error":
            self._texts.append(event.info.msg)  # type: ignore[attr-defined]  # protobuf's

    def line(self) -> str:
        return _shorten_dbt_error(self._texts[0]) if self._texts else "run `dbt parse` for the error"


def _shorten_dbt_error(message: str) -> str:
    """A message of dbt on one line, without headings and without the macro call stack."""
    lines = [line.strip() for line in message.splitlines()]
    message_lines = [line for line in lines if line and not _is_heading(line) and not line.startswith(">")]
    return one_line(" ".join(message_lines or lines)).rstrip(".")


def _is_heading(line: str) -> bool:
    return line.endswith(" Error") or " Error in macro " in line
