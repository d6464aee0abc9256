"""`tidemark check`: problems of the profile, the dbt project, the definitions and the sources.

Changes only dbt's `target/` and log. Starts Spark only if there is a lake: to read the published definitions, and to
test the catalog in a scratch namespace, which is removed. Definitions are checked by the macros, which dbt runs for
each definition.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
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
from ingest.project.dbt_package import check_version
from ingest.project.dbt_project import QUIET_OPTIONS, dbt_options
from ingest.project.run_selection import DEFINITIONS
from ingest.sources import source_kinds


def check_all(settings: Settings, target: str | None = None, folder: Path | str = ".") -> list[Finding]:
    """The findings about all sources and the project. Raises Failure if Spark's Java process ends meanwhile."""
    needed: set[str] = set()
    of_project = check_project(settings, target, folder, needed)
    # Its end is the cause of any other error: no definition is to blame.
    if any(each.level == "error" for each in of_project) and (failure := spark_session.find_exit_failure()):
        raise failure
    all_findings: list[Finding] = []
    for name, source in settings.sources.items():
        names = {each.removeprefix(f"{name}.") for each in needed if each.startswith(f"{name}.")}
        all_findings += findings.with_source(name, source_kinds.check(source, settings.settings, names))
    return all_findings + of_project


def check_project(
    settings: Settings, target: str | None = None, folder: Path | str = ".", needed: set[str] | None = None
) -> list[Finding]:
    """The findings about the Spark profile, the catalog, the dbt project in `folder`, and its definitions.

    needed: receives the tables that definitions read, as `<source>.<table>`.
    """
    options = dbt_options(target, folder)
    try:
        check_version(Path(folder))
        has_lake = spark_session.has_lake(spark_session.read_settings(target, folder))
    except TidemarkError as error:
        return [findings.finding_from_error(error)]
    errors = _ErrorCollector()
    parsed = dbtRunner(callbacks=[errors]).invoke([*QUIET_OPTIONS, "parse", *options])
    if not isinstance(parsed.result, Manifest):
        what = _shorten_dbt_error(str(parsed.exception)) if parsed.exception else errors.line()
        return [Finding("error", f"dbt can't parse it ({what})", str(folder), _PARSE_FIX, group="dbt project")]
    published: dict[str, dict[str, str]] = {}
    of_catalog = [_CATALOG_NOT_TRIED]
    if has_lake:
        try:
            session = spark_session.open_session(target, folder)
            published = _read_published_tables(session)
        except TidemarkError as error:
            return [findings.finding_from_error(error)]
        of_catalog = _check_catalog(session)
    if needed is not None:
        for model in _definitions(parsed.result):
            needed |= _find_tables(parsed.result, model)
    checked = _check_definitions(settings, parsed.result, options, published)
    return [
        *(replace(each, group="catalog") for each in of_catalog),
        *(replace(each, group="definitions") for each in checked),
    ]


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
    try:
        if not session.catalog.tableExists("core.model_watermarks"):
            return {}
        watermarks = session.table("core.model_watermarks")
        if "view_tables" not in watermarks.columns:  # created by an older version
            return {}
        rows = watermarks.where("view_tables is not null").select("model", "view_tables").collect()
    except (PySparkException, Py4JError) as error:
        raise Failure(
            f"the lake can't be read ({first_message_line(str(error))})", "core.model_watermarks", "Check the target"
        ) from error
    return {row["model"]: json.loads(row["view_tables"]) for row in rows}


_PARSE_FIX = "Fix the error; run `dbt parse` for details"


def _definitions(manifest: Manifest) -> list[ModelNode]:
    models = [node for node in manifest.nodes.values() if isinstance(node, ModelNode)]
    return [model for model in models if model.config.materialized in DEFINITIONS]


def _check_definitions(
    settings: Settings, manifest: Manifest, options: list[str], published: Mapping[str, Mapping[str, str]]
) -> Iterator[Finding]:
    definitions = _definitions(manifest)
    valid = 0
    for model in sorted(definitions, key=lambda model: model.name):
        errors = _ErrorCollector()
        arguments = json.dumps({"unique_id": model.unique_id, "published": published.get(model.name, {})})
        operation = ["run-operation", "tidemark.check_definition", "--args", arguments]
        dbt = dbtRunner(manifest=manifest, callbacks=[errors])
        if not dbt.invoke([*QUIET_OPTIONS, *operation, *options]).success:
            yield _parse_refusal(model, errors.line())
            continue
        valid += 1
        for table in sorted(_find_unselected(settings, manifest, model)):
            yield Finding(
                "warning",
                f"it reads {table}, which sources.yml does not select, and will never be updated",
                model.original_file_path,
                "Correct sources.yml, or `meta` of the staging view",
            )
    if definitions:
        yield Finding("ok", f"{valid} of {len(definitions)} are valid", "definitions")
    else:
        message = "there is no definition yet: see docs/guides/definitions.md for how to write one"
        yield Finding("ok", message, "models/buckets")


def _parse_refusal(model: ModelNode, line: str) -> Finding:
    """The error of a definition: the parts of a message of the macro `raise_definition_error`, else the whole line."""
    parts = re.fullmatch(r"(.+?) \((\S+)\)\. (.+)", line)
    if parts:
        return Finding("error", parts[1], parts[2], parts[3])
    return Finding("error", line, model.original_file_path)


def _find_unselected(settings: Settings, manifest: Manifest, model: ModelNode) -> set[str]:
    """The tables that a definition reads, as `<source>.<table>`, and that no source selects."""
    tables = set()
    for each in _find_tables(manifest, model):
        name, _, table = each.partition(".")
        source = settings.sources.get(name)
        if not (source and source.selects(table)):
            tables.add(each)
    return tables


def _find_tables(manifest: Manifest, model: ModelNode) -> set[str]:
    """The tables that a definition reads through its views, as `<source>.<table>`."""
    left, seen, tables = list(model.depends_on.nodes), set(), set()
    while left:
        unique_id = left.pop()
        node = manifest.nodes.get(unique_id)
        if unique_id in seen or not isinstance(node, ModelNode):
            continue
        seen.add(unique_id)
        left += node.depends_on.nodes
        name, table = (str(node.config.meta.get(key, "")) for key in ("source", "table"))
        if table:
            tables.add(f"{name}.{table}")
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
    """A message of dbt on one line, without headings and the macro call stack."""
    lines = [line.strip() for line in message.splitlines()]
    message_lines = [line for line in lines if line and not _is_heading(line) and not line.startswith(">")]
    return one_line(" ".join(message_lines or lines)).rstrip(".")


def _is_heading(line: str) -> bool:
    return line.endswith(" Error") or " Error in macro " in line
