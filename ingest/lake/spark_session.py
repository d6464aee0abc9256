"""The Spark session of the ingest jobs, from the same profile that dbt uses.

`open_session` starts Spark (or connects to it) with the settings of a target in `profiles.yml` and
returns a separate session: dbt's settings of the process's global session, such as the branch that a run writes
to, do not affect the jobs' commits. The JVM's output goes to `logs/spark.log`.
"""

import logging
import os
import re
import signal
import subprocess
import sys
import uuid
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from ingest.common.errors import Failure, UsageError
from ingest.config.dbt_profile import ADAPTER_TYPE, REQUIRED_SETTINGS, get_mapping, read_profile

LOG = Path("logs/spark.log")

# Settings that the JVM needs on its command line, which every user of the machine can read. All others are set later.
_LAUNCH_SETTINGS = re.compile(r"spark\.(master|driver\.|jars|submit\.|app\.name|ui\.)")
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
# Without the second compiler, `tidemark ops` takes 13 CPU seconds in place of 20. The profile's options win.
_FAST_START = "-XX:TieredStopAtLevel=1"
# Whether a row-level statement first searches for the files that contain matching rows: see `file_search`.
_FILE_SEARCH = "spark.sql.optimizer.runtime.rowLevelOperationGroupFilter.enabled"
# The jobs' own statements touch few rows: one task each, planned once.
_JOB_SETTINGS = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    **REQUIRED_SETTINGS,
    "spark.sql.ansi.enabled": "true",
    # Most tables that the jobs update have few files: the search would be a third of the time of an update.
    _FILE_SEARCH: "false",
}

# How long a killed process takes to exit.
_EXIT_SECONDS = 1.0


@dataclass(frozen=True)
class _Java:
    """The Java process that this process started; its log, and the offset of its output in the log, in bytes."""

    process: "subprocess.Popen[bytes]"
    log: Path
    offset: int


_started: list[_Java] = []


def read_settings(target: str | None = None, folder: Path | str = ".") -> dict[str, str]:
    """The Spark settings of `target` (default: the profile's).

    folder: of the dbt project. Raises UsageError.
    """
    profile = read_profile(folder)
    path, outputs = profile.path, get_mapping(profile.content, "outputs", profile.path)
    name = target or _render(profile.content.get("target", "default"), path)
    if name not in outputs:
        raise UsageError(f"no target {name!r}", str(path), f"Known are: {', '.join(map(str, outputs))}")
    output = get_mapping(outputs, name, path)
    if (adapter_type := output.get("type", ADAPTER_TYPE)) != ADAPTER_TYPE:
        raise UsageError(f"the target is of type '{adapter_type}'", str(path), f"Set type: {ADAPTER_TYPE}")
    if output.get("method") != "session":
        raise UsageError(
            f"target {name!r} has no Spark session", str(path), "The jobs need an output with `method: session`"
        )
    parameters = get_mapping(output, "server_side_parameters", path)
    return {key: str(_render(value, path)) for key, value in parameters.items()}


def has_lake(settings: Mapping[str, str]) -> bool:
    """Whether a lake may exist, by the settings of a target: false if the file of a local catalog is missing."""
    files = [_catalog_file(value) for key, value in settings.items() if key.endswith(".uri")]
    return all(file.exists() for file in files if file)


def lake_location(target: str | None = None, folder: Path | str = ".") -> str:
    """The folder or address of the lake's files, by the settings of `target`, for messages."""
    try:
        settings = read_settings(target, folder)
    except UsageError:
        return "the lake"  # another kind of connection, or an invalid profile, which dbt reports
    catalog = settings.get("spark.sql.defaultCatalog")
    return settings.get(f"spark.sql.catalog.{catalog}.warehouse", "the lake")


def open_session(
    target: str | None = None, folder: Path | str = ".", log: Path | str = LOG, *, is_short_command: bool = False
) -> SparkSession:
    """A new session on the Spark of `target`; all calls share one Spark. folder: of the dbt project.

    is_short_command: if this call starts Java, it compiles for a fast start, not for long queries.
    Raises UsageError for a wrong profile, Failure if Spark can't be started or reached.
    """
    settings = read_settings(target, folder)
    if is_short_command and "spark.remote" not in settings:
        settings[_JAVA_OPTIONS] = f"{_FAST_START} {settings.get(_JAVA_OPTIONS, '')}"
    # Every error is raised as an exception too. A second copy with the JVM's stack would hide other log lines.
    PySparkLogger.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    with _failures_to_start(settings, log):
        is_remote = "spark.remote" in settings
        spark = _connect_remote(settings) if is_remote else _local_session(settings, Path(log)).newSession()
        spark.conf.unset("spark.wap.branch")  # the jobs commit to main, also if the profile sets a branch
        for key, value in _JOB_SETTINGS.items():
            spark.conf.set(key, value)
    return spark


def start_local(settings: Mapping[str, str], log: Path | str = LOG) -> None:
    """Starts Spark in this process, unless it runs. Raises Failure if it can't be started.

    settings: of a target without `spark.remote`.
    """
    if SparkContext._active_spark_context is None:  # noqa: SLF001  # there is no public API
        with _failures_to_start(settings, log):
            _local_session(settings, Path(log))


@contextmanager
def file_search(spark: SparkSession) -> Iterator[None]:
    """For statements that delete rows of many files: files without a matching row are not rewritten.

    The setting is that of the session. While it is on, statements of other threads search for files too. If two threads
    overlap, the first one to finish switches it off, and the other one may rewrite more files.
    """
    spark.conf.set(_FILE_SEARCH, "true")
    try:
        yield
    finally:
        spark.conf.set(_FILE_SEARCH, "false")


@contextmanager
def _failures_to_start(settings: Mapping[str, str], log: Path | str) -> Iterator[None]:
    try:
        yield
    except (PySparkException, Py4JError, OSError) as error:
        where = settings.get("spark.remote", settings.get("spark.master", ""))
        hint = "" if "spark.remote" in settings else f"; see {log} for details"
        raise Failure(
            f"Spark can't be started ({_first_line(error)})",
            where,
            f"Check Java and the target{hint}",
        ) from error


def _local_session(settings: Mapping[str, str], log: Path) -> SparkSession:
    """The global session of this process, which dbt uses; starts Spark unless it runs."""
    _make_catalog_folder(settings)
    if SparkContext._gateway is None:  # there is no public API
        _start_java(settings, log)
    builder = SparkSession.builder.appName("tidemark")
    for key, value in settings.items():
        builder = builder.config(key, value)
    logging.getLogger("py4j").setLevel(logging.ERROR)
    spark = builder.getOrCreate()
    _write_no_checksum_files(spark)
    if settings.get("spark.master", "").startswith("local"):
        _drop_yarn_settings(spark)
    return spark


def _start_java(settings: Mapping[str, str], log: Path) -> None:
    if settings.get("spark.master", "local").startswith("local"):
        # The executors run on this machine: they use the same Python, with the same packages.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    log.parent.mkdir(parents=True, exist_ok=True)
    launch = SparkConf(loadDefaults=False)
    for key, value in settings.items():
        if _LAUNCH_SETTINGS.match(key):
            launch.set(key, value)
    with log.open("ab") as sink:
        offset = sink.tell()
        # In a new process session: signals to our process group do not reach it. It ends with this process.
        options: dict[str, Any] = {"stdout": sink, "stderr": sink, "start_new_session": True}
        gateway = launch_gateway(launch, popen_kwargs=options)  # type: ignore[no-untyped-call]
    if gateway.proc is not None:  # None: spark-submit started Java
        _started.append(_Java(gateway.proc, log, offset))
    SparkContext._ensure_initialized(gateway=gateway)  # noqa: SLF001  # there is no public API


def _write_no_checksum_files(spark: SparkSession) -> None:
    """Stops Hadoop from writing a `.crc` file beside each file in a local folder: nearly half of its files."""
    hadoop = spark._jvm.org.apache.hadoop.fs.FileSystem  # type: ignore[union-attr]  # no public API
    hadoop.getLocal(spark._jsc.hadoopConfiguration()).setWriteChecksum(False)


def _drop_yarn_settings(spark: SparkSession) -> None:
    """Removes Hadoop's settings of YARN, which Spark in one process does not use.

    They are half of Hadoop's settings, which Iceberg copies for each file and sends to each task.
    """
    hadoop = spark._jsc.hadoopConfiguration()
    names = hadoop.getPropsWithPrefix("yarn.").keySet().toString()  # one call of Java in place of one per name
    for name in names.strip("[]").split(", "):
        hadoop.unset(f"yarn.{name}")


def has_java_exited() -> bool:
    """Whether the Java process that this process started has ended; returns at once."""
    return bool(_started) and _started[-1].process.poll() is not None


def raise_if_java_exited(error: Exception) -> None:
    """Raises the Failure of the Java process if its end is the cause of `error`."""
    is_lost = isinstance(error, Py4JError | ConnectionError) and not isinstance(error, Py4JJavaError)
    if is_lost and (failure := find_exit_failure()):
        raise failure from error


def find_exit_failure() -> Failure | None:
    """The error to raise if the Java process that this process started has ended; None if it runs, or there is none."""
    if not _started:
        return None
    java = _started[-1]
    try:
        status = java.process.wait(_EXIT_SECONDS)
    except subprocess.TimeoutExpired:
        return None
    with java.log.open("rb") as log:
        log.seek(java.offset)
        return exit_failure(status, is_out_of_memory=b"OutOfMemoryError" in log.read(), log=java.log)


def exit_failure(status: int, *, is_out_of_memory: bool, log: Path) -> Failure:
    """The end of Spark's Java process, with its exit status (-N: killed by signal N), as an error."""
    how = f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit code {status}"
    fix = "Start again: uncommitted changes are read again"
    if is_out_of_memory:
        how, fix = f"{how}, out of memory", f"Raise TIDEMARK_DRIVER_MEMORY. {fix}"
    elif status == -signal.SIGKILL:
        fix = f"If memory was short, the kernel killed it: see the kernel log. {fix}"
    return Failure(f"Spark's Java process has ended ({how})", str(log), fix)


def _connect_remote(settings: Mapping[str, str]) -> SparkSession:
    from pyspark.sql.connect.session import SparkSession as Remote  # loads gRPC

    # dbt sets spark.sql.catalogImplementation on every server; a remote server does not allow it.
    warnings.filterwarnings("ignore", message="Failed to set spark.sql.catalogImplementation")
    spark = Remote.builder.remote(settings["spark.remote"]).create()
    for key, value in settings.items():
        if key.startswith("spark.sql."):
            spark.conf.set(key, value)
    return spark  # type: ignore[return-value]  # the same methods, another class


def _make_catalog_folder(settings: Mapping[str, str]) -> None:
    """Creates the folder of a catalog on SQLite, which creates only its file."""
    for key, value in settings.items():
        if key.endswith(".uri") and (file := _catalog_file(value)):
            file.parent.mkdir(parents=True, exist_ok=True)


def _catalog_file(uri: str) -> Path | None:
    """The file of a catalog on SQLite; None for any other catalog."""
    return Path(uri.removeprefix("jdbc:sqlite:").partition("?")[0]) if uri.startswith("jdbc:sqlite:") else None


def _render(value: Any, path: Path) -> Any:
    """`value` with dbt's Jinja rendered: `env_var`, `invocation_id`, `as_number` and the like."""
    if not isinstance(value, str) or "{{" not in value:
        return value
    jinja = jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=False)
    for name in ("as_number", "as_native", "as_bool", "as_text"):
        jinja.filters[name] = lambda text: text
    try:
        return jinja.from_string(value).render(env_var=_env_var, invocation_id=str(uuid.uuid4()))
    except jinja2.TemplateError as error:
        raise UsageError(str(error), str(path), "Set it, or correct the profile") from None


def _env_var(name: str, default: str | None = None) -> str:
    text = os.environ.get(name, default)
    if text is None:
        raise jinja2.UndefinedError(f"the environment variable {name} is not set")
    return text


def _first_line(error: Exception) -> str:
    if isinstance(error, PySparkRuntimeError) and "JAVA_GATEWAY_EXITED" in str(error):
        return "Java didn't start"
    if isinstance(error, Py4JJavaError):
        return str(error.java_exception).partition("\n")[0]
    return str(error).partition("\n")[0] or type(error).__name__
