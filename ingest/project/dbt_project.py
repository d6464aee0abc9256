"""Runs the dbt project in this process: parsed once, then run on the existing Spark session.

A failure has one line for each failed node; the command's log file has dbt's complete message.
"""

import json
import logging
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from dbt.artifacts.schemas.run import RunExecutionResult, RunResult
from dbt.cli.main import dbtRunner, dbtRunnerResult
from dbt.contracts.graph.manifest import Manifest
from dbt_common.events.base_types import EventMsg
from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from ingest.common.environment_errors import disk_fails, unavailable_text
from ingest.common.errors import Failure, UsageError, first_message_line, one_line
from ingest.config.dbt_profile import ADAPTER_TYPE, PROFILES_FILE, PROJECT_FILE, find_profiles_folder
from ingest.lake import spark_session
from ingest.lake.iceberg_commit import CONFLICT
from ingest.project.dbt_package import DEFINITIONS, check_version
from ingest.project.run_selection import select_nodes

# Without these options dbt would print the errors that a Failure has in one line, with complete query plans. It would
# also write `logs/dbt.log`, which would grow with each run.
QUIET_OPTIONS = ("--quiet", "--log-level", "none")
# dbt's default folders that are not the plural of the kind.
_DEFAULT_FOLDERS = {"analysis": "analyses"}
# The files that dbt reads in each invocation.
_SETTINGS_FILES = (PROJECT_FILE, "packages.yml", "dependencies.yml", PROFILES_FILE)
# The length to which a message is cut: Spark's may contain a plan or a stack trace.
MESSAGE_LENGTH = 500
# dbt's status of a failed node.
FAILED = ("error", "fail", "runtime error")
# Messages of concurrent releases: of the adapter's `Releases`; of Iceberg, if `core.releases` or
# another table has changed or a branch was dropped; of Spark, if another run has just created the table.
_CONCURRENT_PUBLISH = re.compile(
    "another run published|another process changed or dropped them|changed while dbt listed them|not an ancestor|"
    f"Ref does not exist: run_|TABLE_OR_VIEW_ALREADY_EXISTS|{CONFLICT}"
)
# The message if `prune` dropped a definition's table during the run, and a hook or a macro uses it. In a model the
# message may come from an error of the SQL.
_TABLE_DROPPED = re.compile(r"TABLE_OR_VIEW_NOT_FOUND\] The table or view `?(?!(?:raw|core)\b)\w+`?\.")

# An OSError of Python concerns dbt's files, because Java writes the lake's.
_PYTHON_OS_ERROR = re.compile(r"\[Errno \d+\]")

# This logger writes to the log file only.
_file_log = logging.getLogger("dbt details")


# A line of a Java stack trace, or py4j's heading above it.
_STACK_LINE = re.compile(r"\s*(?:at [\w.$/]+\(|\.\.\. \d+ more|An error occurred while calling \w+\.\w+)")


class ConcurrentPublishError(Failure):
    """Another run or maintenance published first, and this one published nothing: it can be repeated at once."""


# For functions that publish. Raises ConcurrentPublishError after the last attempt.
retry_on_concurrent_publish = retry(
    retry=retry_if_exception_type(ConcurrentPublishError),
    wait=wait_random_exponential(max=10.0),
    stop=stop_after_attempt(5),
    reraise=True,
)


@dataclass(frozen=True)
class NodeResult:
    """The result of a node: name, kind (materialization), dbt's status and message, the adapter's response, seconds."""

    name: str
    kind: str
    status: str
    message: str
    response: dict[str, Any]
    seconds: float


class Project:
    """The project in `folder`, on a target of its profile (None: the profile's default).

    Raises Failure if dbt can't parse it, UsageError if its dbt package is of another version than this code or its
    target is of another adapter.
    """

    def __init__(self, target: str | None = None, folder: Path | str = ".") -> None:
        self._target, self._folder = target, Path(folder)
        self._frozen_folder: Path | None = None
        self._files = _read_file_versions(self._folder)
        self._options = dbt_options(target, folder)
        check_version(self._folder)
        parse_result = dbtRunner().invoke([*QUIET_OPTIONS, "parse", *self._options])
        if not isinstance(parse_result.result, Manifest):
            what, where = "the dbt project can't be parsed", "dbt_project.yml"
            raise _make_failure(
                str(parse_result.exception), what, where, _format_error(parse_result), lake=self._lake_location
            )
        self.manifest = parse_result.result
        if (adapter_type := self.manifest.metadata.adapter_type) != ADAPTER_TYPE:
            raise UsageError(f"the target is of type '{adapter_type}'", PROFILES_FILE, f"Set type: {ADAPTER_TYPE}")

    def reparse_if_changed(self) -> "Project":
        """This project, or a newly parsed one if its files have changed. Raises Failure if it can't be parsed."""
        return self if _read_file_versions(self._folder) == self._files else self.parse_again()

    def parse_again(self) -> "Project":
        """The project as its files are now. Raises Failure if it can't be parsed."""
        project = Project(self._target, self._folder)
        if self._frozen_folder:
            project.freeze(self._frozen_folder)
        return project

    def freeze(self, folder: Path) -> None:
        """Copies the project's settings into `folder`: later invocations read the copies, not the edited files. The
        project's other files, which the invocations do not read, are links in `folder`.
        """
        for path in self._folder.resolve().iterdir():
            target_path = folder / path.name
            if path.name in _SETTINGS_FILES or not path.name.startswith("."):
                target_path.unlink(missing_ok=True)
                if path.name in _SETTINGS_FILES:
                    shutil.copy(path, target_path)
                else:
                    target_path.symlink_to(path)
        self._frozen_folder, self._options = folder, dbt_options(self._target, folder)

    def invoke(self, command: str, *arguments: str) -> list[NodeResult]:
        """Runs a dbt command, such as `build`. Raises Failure if a node or a hook fails."""
        outcomes, failure = self.try_invoke(command, *arguments)
        if failure:
            raise failure
        return outcomes

    def try_invoke(self, command: str, *arguments: str) -> tuple[list[NodeResult], Failure | None]:
        """Runs a dbt command; returns the results of its nodes, and the Failure that `invoke` would raise."""
        dbt_result = dbtRunner(manifest=self.manifest).invoke([*QUIET_OPTIONS, command, *arguments, *self._options])
        results = dbt_result.result.results if isinstance(dbt_result.result, RunExecutionResult) else []
        failure = None
        if failed_results := [result for result in results if str(result.status) in FAILED]:
            errors = "; ".join(
                f"{_describe_node(result)}: {_shorten(first_message_line(str(result.message)))}"
                for result in failed_results
            )
            text = " ".join(str(result.message) for result in failed_results)
            hint = "Fix the error and run again; models that do not depend on it are published"
            failure = _make_failure(text, errors, f"dbt {command}", hint, lake=self._lake_location)
        elif not dbt_result.success:
            problem = f"dbt did not finish ({_format_error(dbt_result)})"
            failure = _make_failure(
                _get_error_text(dbt_result),
                problem,
                f"dbt {command}",
                lake=self._lake_location,
                concurrent=_TABLE_DROPPED,
            )
        return [_parse_result(result) for result in results], failure

    def build(self, *, deployed: bool, others: Sequence[str] = ()) -> tuple[list[NodeResult], Failure | None]:
        """Builds Tidemark's nodes and what they need; returns their results, and a Failure if a node or a hook failed.

        deployed: the views and seeds are built already, and dbt's artifacts written. others: further selectors.
        Raises ConcurrentPublishError if nothing was published because of another process.
        """
        options = ["--no-write-json"] if deployed else []
        selection = select_nodes(self.manifest, deployed=deployed, others=others)
        outcomes, failure = self.try_invoke("build", *options, *selection)
        if isinstance(failure, ConcurrentPublishError):
            raise failure
        return outcomes, failure

    @property
    def _lake_location(self) -> str:
        """The location of the lake's files, for messages."""
        return spark_session.lake_location(self._target, self._folder)

    def compile_views(self) -> None:
        """Compiles the views: a definition's hash then covers them as they would be created, not as deployed."""
        self.invoke("compile", "--select", "config.materialized:view")
        self.manifest.build_flat_graph()  # type: ignore[no-untyped-call]

    def run_operation(self, macro: str, **arguments: Any) -> list[str]:
        """Calls a macro of Tidemark by `dbt run-operation`; returns the lines that it logs.

        Raises Failure or ConcurrentPublishError if it fails.
        """
        collector = _LogCollector()
        command = [
            *QUIET_OPTIONS,
            "run-operation",
            f"tidemark.{macro}",
            "--args",
            json.dumps(arguments),
            *self._options,
        ]
        dbt_result = dbtRunner(manifest=self.manifest, callbacks=[collector]).invoke(command)
        if not dbt_result.success:
            text = " ".join(collector.errors) or _get_error_text(dbt_result)
            raise _make_failure(
                text, _shorten(text), f"macro {macro}", lake=self._lake_location, concurrent=_TABLE_DROPPED
            )
        return collector.lines

    @property
    def definitions(self) -> list[str]:
        """Names of the definitions."""
        nodes = self.manifest.nodes.values()
        return sorted(node.name for node in nodes if node.config.materialized in DEFINITIONS)

    @property
    def lookups(self) -> dict[str, list[str]]:
        """The parameters of each lookup (`bucket_lookup` model), by name. Raises UsageError."""
        nodes = [node for node in self.manifest.nodes.values() if node.config.materialized == "bucket_lookup"]
        for node in nodes:
            if not isinstance(node.config.meta.get("parameters"), list):
                fix = "List the columns that a request provides; [] grants to every request"
                raise UsageError("meta.parameters is missing or not a list", node.original_file_path, fix)
        return {node.name: list(node.config.meta["parameters"]) for node in sorted(nodes, key=lambda node: node.name)}


def dbt_options(target: str | None, folder: Path | str) -> list[str]:
    """The options of dbt's commands for the project in `folder`."""
    options = ["--project-dir", str(folder), "--profiles-dir", str(find_profiles_folder(folder))]
    return options + (["--target", target] if target else [])


class _LogCollector:
    """Collects the lines that macros log, and dbt's error messages."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.errors: list[str] = []

    def __call__(self, event: EventMsg) -> None:
        if event.info.name == "JinjaLogInfo":
            self.lines.append(event.info.msg)  # type: ignore[attr-defined]  # protobuf's
        elif event.info.level == "error":
            self.errors.append(event.info.msg)  # type: ignore[attr-defined]


def _read_file_versions(folder: Path) -> frozenset[tuple[str, int, int]]:
    """Path, modification time and size of each file that dbt reads, to detect changes."""
    paths = [folder / name for name in _SETTINGS_FILES]
    for path in _list_dbt_folders(folder / PROJECT_FILE):
        paths += (folder / path).rglob("*")
    versions = set()
    for file in paths:
        # Editors create hidden files, and replace the edited file.
        with suppress(FileNotFoundError):
            if file.is_file() and not file.name.startswith("."):
                versions.add((str(file), file.stat().st_mtime_ns, file.stat().st_size))
    return frozenset(versions)


def _list_dbt_folders(settings_file: Path) -> Iterator[str]:
    """The folders that dbt reads, by its settings. dbt reports invalid settings itself."""
    content = None
    with suppress(OSError, UnicodeDecodeError, yaml.YAMLError):
        content = yaml.safe_load(settings_file.read_text())
    for kind in ("model", "macro", "seed", "test", "snapshot", "analysis"):
        paths = content.get(f"{kind}-paths") if isinstance(content, dict) else None
        yield from map(str, paths) if isinstance(paths, list) else [_DEFAULT_FOLDERS.get(kind, f"{kind}s")]


def _make_failure(
    text: str, what: str, where: str, hint: str = "", *, lake: str, concurrent: re.Pattern[str] | None = None
) -> Failure:
    """The error to raise: ConcurrentPublishError or Unavailable if dbt's error `text` is of that kind, else Failure.

    lake: location of the lake, used if the text has no path. concurrent: another pattern of concurrent releases.
    """
    location = "target/" if _PYTHON_OS_ERROR.search(text) else lake
    if failure := disk_fails(text, location):  # first: Iceberg may report a full disk as a failed commit, too
        return failure
    if _CONCURRENT_PUBLISH.search(text) or (concurrent and concurrent.search(text)):
        return ConcurrentPublishError(what, where, "Run it again")
    if failure := unavailable_text(text, location):
        return failure
    _file_log.error("%s: error of dbt", where, exc_info=(RuntimeError, RuntimeError(text), None))
    return Failure(what, where, hint)


def _parse_result(result: RunResult) -> NodeResult:
    config = getattr(result.node, "config", None)
    return NodeResult(
        name=_get_node_name(result),
        kind=str(getattr(config, "materialized", "")),
        status=str(result.status),
        message=str(result.message),
        response=result.adapter_response or {},
        seconds=result.execution_time,
    )


def _get_node_name(result: RunResult) -> str:
    return str(getattr(result.node, "name", result.node.unique_id))


def _describe_node(result: RunResult) -> str:
    """Name and file of a node; for a hook, the project's file."""
    return f"{_get_node_name(result)} ({getattr(result.node, 'original_file_path', 'dbt_project.yml')})"


def _get_error_text(result: dbtRunnerResult) -> str:
    return str(result.exception) if result.exception else "no error message"


def _format_error(result: dbtRunnerResult) -> str:
    return _shorten(_get_error_text(result))


def _shorten(message: str) -> str:
    """A message on one line, without Java's stack trace, cut to `MESSAGE_LENGTH`."""
    lines = [line for line in message.splitlines() if not _STACK_LINE.match(line)]
    line = one_line(" ".join(lines))
    return line if len(line) <= MESSAGE_LENGTH else f"{line[:MESSAGE_LENGTH]} ..."
