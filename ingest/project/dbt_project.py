"""The dbt project, called in process: parsed once, then run on the Spark session that is already warm.

A failure is one line for each node that failed; the command's log file has all that dbt said of it.
"""

import json
import logging
import os
import re
from collections.abc import Iterator
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
from ingest.common.errors import Failure, UsageError, one_line
from ingest.lake import spark_session
from ingest.lake.iceberg_commit import CONFLICT

# dbt says on the screen what the one line of a Failure says, with the whole plan of a query. It then writes no
# `logs/dbt.log` either, which would grow with each run of a warm process.
QUIETLY = ("--quiet", "--log-level", "none")
# The materializations that keep rows and an op log.
DEFINITIONS = ("bucket", "bucket_lookup")
# dbt's, where it is not the plural.
_DEFAULT_FOLDERS = {"analysis": "analyses"}
# The length to which a message is cut: Spark's may contain a plan or a stack trace.
MESSAGE_LENGTH = 500
# What dbt calls the status of a node that failed.
FAILED = ("error", "fail", "runtime error")
# What `commit_manifest` and `check_listed` say, Iceberg of a `core.releases` that has moved, or whose branch was
# dropped by then, Spark of a table that another run has just made, and Iceberg of a table that another commit changed.
_OVERTAKEN = re.compile(
    "another run published|somebody else wrote to it|changed while dbt listed them|not an ancestor|"
    f"Ref does not exist: run_|TABLE_OR_VIEW_ALREADY_EXISTS|{CONFLICT}"
)


# An OSError of Python: dbt's own files, as all of the lake's are written by Java.
_OF_PYTHON = re.compile(r"\[Errno \d+\]")

# Not one of the loggers that show on the screen.
_details = logging.getLogger("dbt details")


# A line of Java's stack, or the heading that py4j puts above it.
_OF_STACK = re.compile(r"\s*(?:at [\w.$/]+\(|\.\.\. \d+ more|An error occurred while calling \w+\.\w+)")


class Overtaken(Failure):
    """Another run, or upkeep, published first, and nothing of this one was: it can be repeated at once."""


# Decorates what publishes. What a busy lake has been overtaken in so often is told.
repeated_if_overtaken = retry(
    retry=retry_if_exception_type(Overtaken),
    wait=wait_random_exponential(max=10.0),
    stop=stop_after_attempt(5),
    reraise=True,
)


@dataclass(frozen=True)
class Outcome:
    """What a node came to: its name, dbt's status and message, what its materialization reported, seconds."""

    name: str
    status: str
    message: str
    report: dict[str, Any]
    seconds: float


class Project:
    """The project in `folder`, on a target of its `profiles/profiles.yml` (default: the profile's own)."""

    def __init__(self, target: str | None = None, folder: Path | str = ".") -> None:
        self._target, self._folder = target, Path(folder)
        self._files = _files(self._folder)
        self._profiles = os.environ.get("DBT_PROFILES_DIR", str(Path(folder) / "profiles"))
        self._options = ["--project-dir", str(folder), "--profiles-dir", self._profiles]
        if target:
            self._options += ["--target", target]
        found = dbtRunner().invoke([*QUIETLY, "parse", *self._options])
        if not isinstance(found.result, Manifest):
            what, where = "the dbt project can't be parsed", "dbt_project.yml"
            raise _failure(str(found.exception), what, where, _said(found), lake=self._lake)
        self.manifest = found.result

    def renewed(self) -> "Project":
        """Itself; parsed anew, if a file of it has changed since. Raises Failure if it can't be parsed now."""
        return self if _files(self._folder) == self._files else Project(self._target, self._folder)

    def invoke(self, command: str, *arguments: str) -> list[Outcome]:
        """Run a dbt command, such as `build`. Raises Failure if a node or a hook fails."""
        outcomes, failure = self.attempt(command, *arguments)
        if failure:
            raise failure
        return outcomes

    def attempt(self, command: str, *arguments: str) -> tuple[list[Outcome], Failure | None]:
        """Run a dbt command; gives what each node came to, and what `invoke` would raise."""
        done = dbtRunner(manifest=self.manifest).invoke([*QUIETLY, command, *arguments, *self._options])
        results = done.result.results if isinstance(done.result, RunExecutionResult) else []
        failure = None
        if failed := [result for result in results if str(result.status) in FAILED]:
            said = "; ".join(f"{_path(result)}: {_brief(first_line(str(result.message)))}" for result in failed)
            told = " ".join(str(result.message) for result in failed)
            hint = "Mend it and run again; what does not hang on it goes on"
            failure = _failure(told, said, f"dbt {command}", hint, lake=self._lake)
        elif not done.success:
            what = f"dbt did not finish ({_said(done)})"
            failure = _failure(_told(done), what, f"dbt {command}", lake=self._lake)
        return [_outcome(result) for result in results], failure

    @property
    def _lake(self) -> str:
        """The place of the lake's files, for messages."""
        return spark_session.lake_place(self._target, self._profiles)

    def compile_views(self) -> None:
        """Let the macros know the views as they would be made now, not as they stand in the lake (`view_text`)."""
        self.invoke("compile", "--select", "config.materialized:view")
        self.manifest.build_flat_graph()  # type: ignore[no-untyped-call]

    def operation(self, macro: str, **arguments: Any) -> list[str]:
        """Call a macro of ours by `dbt run-operation`; gives the lines that it logs.

        Raises Failure, or Overtaken, if it fails.
        """
        heard = _Heard()
        called = [*QUIETLY, "run-operation", f"tidemark.{macro}", "--args", json.dumps(arguments), *self._options]
        done = dbtRunner(manifest=self.manifest, callbacks=[heard]).invoke(called)
        if not done.success:
            told = " ".join(heard.errors) or _told(done)
            raise _failure(told, _brief(told), f"macro {macro}", lake=self._lake)
        return heard.lines

    @property
    def definitions(self) -> list[str]:
        """Names of the definitions."""
        nodes = self.manifest.nodes.values()
        return sorted(node.name for node in nodes if node.config.materialized in DEFINITIONS)

    @property
    def lookups(self) -> dict[str, list[str]]:
        """Names of the models that say which buckets a request may see, with what they ask for. Raises UsageError."""
        nodes = [node for node in self.manifest.nodes.values() if node.config.materialized == "bucket_lookup"]
        for node in nodes:
            if not isinstance(node.config.meta.get("parameters"), list):
                fix = "Name the columns that a request gives; [] is for everybody"
                raise UsageError("meta.parameters is missing or no list", node.original_file_path, fix)
        return {node.name: list(node.config.meta["parameters"]) for node in sorted(nodes, key=lambda node: node.name)}


class _Heard:
    """What macros log, and what dbt says of errors."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.errors: list[str] = []

    def __call__(self, event: EventMsg) -> None:
        if event.info.name == "JinjaLogInfo":
            self.lines.append(event.info.msg)  # type: ignore[attr-defined]  # protobuf's
        elif event.info.level == "error":
            self.errors.append(event.info.msg)  # type: ignore[attr-defined]


def _files(folder: Path) -> frozenset[tuple[str, int, int]]:
    """What tells whether a project is as it was: path, time of change and size of each file that dbt reads."""
    found = [folder / name for name in ("dbt_project.yml", "packages.yml", "profiles/profiles.yml")]
    for path in _folders(folder / "dbt_project.yml"):
        found += (folder / path).rglob("*")
    files = set()
    for file in found:
        # Editors keep files of their own beside those that they edit, and replace these.
        with suppress(FileNotFoundError):
            if file.is_file() and not file.name.startswith("."):
                files.add((str(file), file.stat().st_mtime_ns, file.stat().st_size))
    return frozenset(files)


def _folders(settings: Path) -> Iterator[str]:
    """Where dbt reads files, as its settings say. It says itself what is wrong with them."""
    said = None
    with suppress(OSError, UnicodeDecodeError, yaml.YAMLError):
        said = yaml.safe_load(settings.read_text())
    for kind in ("model", "macro", "seed", "test", "snapshot", "analysis"):
        named = said.get(f"{kind}-paths") if isinstance(said, dict) else None
        yield from map(str, named) if isinstance(named, list) else [_DEFAULT_FOLDERS.get(kind, f"{kind}s")]


def _failure(told: str, what: str, where: str, hint: str = "", *, lake: str) -> Failure:
    """What to raise: Overtaken or Unavailable if the text that dbt has `told` is of that kind, else Failure.

    lake: its place, named if the text names no folder.
    """
    place = "target/" if _OF_PYTHON.search(told) else lake
    if found := disk_fails(told, place):  # Iceberg may say of that, too, that a commit failed
        return found
    if _OVERTAKEN.search(told):
        return Overtaken(what, where, "Run it again")
    if found := unavailable_text(told, place):
        return found
    _details.error("%s: dbt said", where, exc_info=(RuntimeError, RuntimeError(told), None))
    return Failure(what, where, hint)


def _outcome(result: RunResult) -> Outcome:
    code = str((result.adapter_response or {}).get("code", ""))
    report = json.loads(code) if code.startswith("{") else {}
    return Outcome(_name(result), str(result.status), str(result.message), report, result.execution_time)


def _name(result: RunResult) -> str:
    return str(getattr(result.node, "name", result.node.unique_id))


def _path(result: RunResult) -> str:
    """The file to look at; a hook's is the project's."""
    return f"{_name(result)} ({getattr(result.node, 'original_file_path', 'dbt_project.yml')})"


def first_line(message: str) -> str:
    """Of what dbt says of a failed node: its messages begin with a heading, py4j's too; Spark's go on with a plan."""
    lines = [line.strip().removeprefix(": ") for line in message.splitlines()]
    heading = "An error occurred while calling"
    told = (line for line in lines if line and not line.endswith((")", "Error")) and not line.startswith(heading))
    return next(told, message)


def _told(result: dbtRunnerResult) -> str:
    return str(result.exception) if result.exception else "it did not say why"


def _said(result: dbtRunnerResult) -> str:
    return _brief(_told(result))


def _brief(message: str) -> str:
    """A message on one line, without Java's stack, cut if it is long."""
    lines = [line for line in message.splitlines() if not _OF_STACK.match(line)]
    line = one_line(" ".join(lines))
    return line if len(line) <= MESSAGE_LENGTH else f"{line[:MESSAGE_LENGTH]} ..."
