"""`tidemark check`: what would go wrong with the profile, the dbt project, definitions and sources.

Changes nothing but dbt's own `target/` and log. Starts Spark only if there is a lake: to read what the definitions were
published with, and to try the catalog in a scratch namespace, which is removed. The definitions' rules are those of
the macros, which dbt runs for each definition.
"""

import json
import os
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
from ingest.common.errors import Failure, TidemarkError, one_line
from ingest.common.findings import Finding
from ingest.config.sources_file import Settings
from ingest.lake import catalog_capabilities, spark_session
from ingest.project.dbt_project import DEFINITIONS, QUIETLY, first_line
from ingest.sources import source_kinds


def check_all(settings: Settings, target: str | None = None, folder: Path | str = ".") -> list[Finding]:
    """What is found of the project and of every source."""
    needed: set[str] = set()
    of_project = check_project(settings, target, folder, needed)
    found: list[Finding] = []
    for name, source in settings.sources.items():
        names = {each.removeprefix(f"{name}.") for each in needed if each.startswith(f"{name}.")}
        found += findings.of_source(name, source_kinds.check(source, settings.settings, names))
    return found + of_project


def check_project(
    settings: Settings, target: str | None = None, folder: Path | str = ".", needed: set[str] | None = None
) -> list[Finding]:
    """What is found of the Spark profile, the dbt project in `folder`, and its definitions.

    needed: is given the tables that definitions read, as `<source>.<table>`.
    """
    profiles = os.environ.get("DBT_PROFILES_DIR", str(Path(folder) / "profiles"))
    options = ["--project-dir", str(folder), "--profiles-dir", profiles]
    options += ["--target", target] if target else []
    try:
        has_lake = spark_session.has_lake(spark_session.settings(target, profiles))
    except TidemarkError as error:
        return [findings.of(error)]
    said = _Said()
    parsed = dbtRunner(callbacks=[said]).invoke([*QUIETLY, "parse", *options])
    if not isinstance(parsed.result, Manifest):
        what = _readable(str(parsed.exception)) if parsed.exception else said.line()
        return [Finding("error", f"dbt can't read it ({what})", str(folder), _MEND, group="dbt project")]
    published: dict[str, dict[str, str]] = {}
    of_catalog = [_NOT_TRIED]
    if has_lake:
        try:
            session = spark_session.session(target, profiles)
            published = _published(session)
        except TidemarkError as error:
            return [findings.of(error)]
        of_catalog = _check_catalog(session)
    if needed is not None:
        for model in _definitions(parsed.result):
            needed |= _read_by(parsed.result, model)
    checked = _check_definitions(settings, parsed.result, options, published)
    return [
        *(replace(each, group="catalog") for each in of_catalog),
        *(replace(each, group="definitions") for each in checked),
    ]


_NOT_TRIED = Finding(
    "ok",
    "the catalog's file does not exist yet; the first job creates it, and tries namespaces and views",
    "profiles/profiles.yml",
)


def _check_catalog(session: SparkSession) -> list[Finding]:
    name = f"catalog {session.catalog.currentCatalog()}"
    return catalog_capabilities.missing(session) or [Finding("ok", "it can do all that Tidemark needs", name)]


def _published(session: SparkSession) -> dict[str, dict[str, str]]:
    """The table that each staging view below a definition showed when that was published, as `<source>.<table>`.

    Raises Failure if the lake can't be read.
    """
    try:
        if not session.catalog.tableExists("core.model_watermarks"):
            return {}
        progress = session.table("core.model_watermarks")
        if "view_tables" not in progress.columns:  # of an earlier Tidemark
            return {}
        rows = progress.where("view_tables is not null").select("model", "view_tables").collect()
    except (PySparkException, Py4JError) as error:
        raise Failure(
            f"the lake can't be read ({first_line(str(error))})", "core.model_watermarks", "Check the target"
        ) from error
    return {row["model"]: json.loads(row["view_tables"]) for row in rows}


_MEND = "Fix the error; run `dbt parse` for details"


def _definitions(manifest: Manifest) -> list[ModelNode]:
    models = [node for node in manifest.nodes.values() if isinstance(node, ModelNode)]
    return [model for model in models if model.config.materialized in DEFINITIONS]


def _check_definitions(
    settings: Settings, manifest: Manifest, options: list[str], published: Mapping[str, Mapping[str, str]]
) -> Iterator[Finding]:
    definitions = _definitions(manifest)
    good = 0
    for model in sorted(definitions, key=lambda model: model.name):
        said = _Said()
        arguments = json.dumps({"unique_id": model.unique_id, "published": published.get(model.name, {})})
        operation = ["run-operation", "tidemark.check_definition", "--args", arguments]
        dbt = dbtRunner(manifest=manifest, callbacks=[said])
        if not dbt.invoke([*QUIETLY, *operation, *options]).success:
            yield _refused(model, said.line())
            continue
        good += 1
        for table in sorted(_unselected(settings, manifest, model)):
            yield Finding(
                "warning",
                f"it reads {table}, which sources.yml does not select, and will stand still",
                model.original_file_path,
                "Correct sources.yml, or `meta` of the staging view",
            )
    if definitions:
        yield Finding("ok", f"{good} of {len(definitions)} are valid", "definitions")
    else:
        yield Finding("ok", "there is no definition yet: docs/buckets.md says how to write one", "models/buckets")


def _refused(model: ModelNode, line: str) -> Finding:
    """What the macro `_refuse` said, taken apart again; anything else as it is."""
    parts = re.fullmatch(r"(.+?) \((\S+)\)\. (.+)", line)
    if parts:
        return Finding("error", parts[1], parts[2], parts[3])
    return Finding("error", line, model.original_file_path)


def _unselected(settings: Settings, manifest: Manifest, model: ModelNode) -> set[str]:
    """The tables below a definition, as `<source>.<table>`, that no source brings."""
    tables = set()
    for each in _read_by(manifest, model):
        name, _, table = each.partition(".")
        source = settings.sources.get(name)
        if not (source and source.selects(table)):
            tables.add(each)
    return tables


def _read_by(manifest: Manifest, model: ModelNode) -> set[str]:
    """The tables below a definition, as `<source>.<table>`."""
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


class _Said:
    """What dbt says of an error: its exceptions don't always come back from an invocation."""

    def __init__(self) -> None:
        self._texts: list[str] = []

    def __call__(self, event: EventMsg) -> None:
        if event.info.level == "error":
            self._texts.append(event.info.msg)  # type: ignore[attr-defined]  # protobuf's

    def line(self) -> str:
        return _readable(self._texts[0]) if self._texts else "run `dbt parse` for what it is"


def _readable(message: str) -> str:
    """A message of dbt's on one line, without its headings and the macros that it came through."""
    lines = [line.strip() for line in message.splitlines()]
    told = [line for line in lines if line and not _is_heading(line) and not line.startswith(">")]
    return one_line(" ".join(told or lines)).rstrip(".")


def _is_heading(line: str) -> bool:
    return line.endswith(" Error") or " Error in macro " in line
