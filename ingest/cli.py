"""The `tidemark` command. Each command is described by its help; errors are one line on stderr.

Exit codes: 0 success, 1 failure, 2 wrong usage. Tracebacks of unexpected errors go to `logs/tidemark.log`.
"""

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ingest.common.errors import Failure, TidemarkError, UsageError, one_line, printable, redact, text_of
from ingest.config.sources_file import load

if TYPE_CHECKING:
    from ingest.lake import Lake
    from ingest.pipeline.ingest_jobs import Jobs

LOG = Path("logs/tidemark.log")

_UNTIL = click.option(
    "--until-caught-up",
    is_flag=True,
    help="For cron: end with exit code 0 when everything committed before the start is in the lake "
    "(`tidemark run`: and published). "
    "Otherwise run until SIGTERM.",
)
_TIMEOUT = click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="With --until-caught-up: end with exit code 1 after this time, and list what is missing.",
)
_ONLY = click.option(
    "--source", "names", multiple=True, metavar="NAME", help="Only this source; may be repeated. Default: all."
)
_TARGET = click.option(
    "--target",
    metavar="NAME",
    help="Output of profiles/profiles.yml: local, cluster. Default: TIDEMARK_TARGET, or local.",
)
_SOURCES = click.option(
    "--sources",
    default="sources.yml",
    show_default=True,
    type=click.Path(dir_okay=False),
    help="The file with the sources to replicate.",
)


def main() -> None:
    """Entry point of the console command."""
    try:
        _log_to_file()
        _set_pwd()
        cli.main(standalone_mode=False)
    except TidemarkError as error:
        known = _find_spark_exit() or error
        _end(str(known), known.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        sys.exit(130)
    except Exception as error:
        if found := _find_spark_exit() or _environment_error(error):
            _end(str(found), found.exit_code)
        logging.getLogger(__name__).exception("unexpected error")
        _end(f"{type(error).__name__}: {_text(error)}. {LOG} has the traceback.", 1)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="tidemark")
def cli() -> None:
    """Replicate databases into a lakehouse, and maintain slices of them that are defined in SQL.

    Start with `tidemark demo`, or write sources.yml, then: `tidemark check`, `tidemark codegen`, `tidemark run`.
    """


@cli.command()
@_SOURCES
@_TARGET
@click.option("--strict", is_flag=True, help="Exit code 1 for warnings too, as for CI.")
@click.option("--json", "as_json", is_flag=True, help="JSON lines, for programs.")
def check(sources: str, target: str | None, strict: bool, as_json: bool) -> None:
    """Find problems before they occur, and how to fix them.

    Checks permissions, wal_level, replica identities, versions, the Spark profile, the catalog and definitions. Changes
    nothing in the sources; the catalog is tested in a scratch namespace, which is removed. Exit code 1 if a finding is
    an error; a table that can't be replicated and that nothing requires is a warning. Each line of --json is an object
    with level (error, warning, ok), source (null if the finding concerns none), subject, message and fix.
    """
    from ingest.commands.check import check_all
    from ingest.common import findings

    found = check_all(load(sources), target)
    for line in [each.to_json() for each in found] if as_json else findings.format_findings(found):
        click.echo(line)
    failing = {"error", "warning"} if strict else {"error"}
    if any(each.level in failing for each in found):
        sys.exit(1)


@cli.command()
@_SOURCES
@_TARGET
@click.option("--source", "name", metavar="NAME", help="Only this source.")
@click.option("--force", is_flag=True, help="Overwrite the files of the named tables.")
@click.option("--diff", "shows", is_flag=True, help="Print what --force would change as a unified diff. Write nothing.")
@click.argument("tables", nargs=-1, metavar="[TABLE]...")
def codegen(
    sources: str, target: str | None, name: str | None, force: bool, shows: bool, tables: tuple[str, ...]
) -> None:
    """Write staging views: models/staging/stg_<source>__<table>.sql and .yml from the source's catalog.

    You may edit the files. A file that differs from the generated one is not changed, and is listed: `--force
    public.orders` overwrites the files of that table. TABLE is a name or a pattern as in sources.yml; '*.*' is all.

    A table keeps its view's name: another table whose view would have the same name gets a hash suffix. Spark tests
    each new view before its file is written. Exit code 1 if Spark rejects a view, or a source can't be read; the other
    views are written.
    """
    from ingest.codegen.view_trial import ViewTrial
    from ingest.commands.codegen import Codegen

    settings = load(sources)
    if not Path("dbt_project.yml").is_file():
        raise UsageError("there is no dbt project here", "dbt_project.yml", "Run the command in the project's folder")
    if force and not tables:
        fix = "Name them, as in `tidemark codegen --force public.orders`; '*.*' is all"
        raise UsageError("no tables to overwrite", "--force", fix)
    command = Codegen(ViewTrial(lambda: _lake(target).spark).try_view, tables=tables, force=force)
    refused: list[str] = []
    failures: list[Failure] = []
    for source in [settings.source(name)] if name else settings.sources.values():
        try:
            if shows:
                lines = list(command.diff(source, settings.settings))
            else:
                done = command.write(source, settings.settings)
                lines, refused = done.lines, refused + done.refused
        except Failure as failure:  # the other sources' views are written anyway
            failures.append(failure)
            lines = []
        for line in lines:
            _echo(line)
    for each in failures[:-1]:
        _echo(f"tidemark: {each}", err=True)
    if failures:
        raise failures[-1]
    command.check_tables_exist()
    if refused:
        sys.exit(1)


@cli.command()
@_SOURCES
@_TARGET
@_ONLY
@_UNTIL
@_TIMEOUT
def snapshot(
    sources: str, target: str | None, names: tuple[str, ...], until_caught_up: bool, timeout: float | None
) -> None:
    """Read the queued tables into raw.snapshot_rows, chunk by chunk, on Spark's executors.

    New tables are queued automatically. Runs alongside `tidemark stream`; several may run at once. A source that
    fails is retried while the others go on; exit code 1 if one is in a failed state at the end.
    """
    from ingest.pipeline.ingest_jobs import Jobs

    _check_timeout(until_caught_up, timeout)
    settings = load(sources).only(names)
    _run_jobs(Jobs(_lake(target), settings, stream=False), until_caught_up, timeout)


@cli.command()
@_SOURCES
@_TARGET
@_ONLY
@_UNTIL
@_TIMEOUT
@click.option(
    "--writer",
    "writers",
    type=click.IntRange(min=1),
    multiple=True,
    metavar="N",
    help="Only this writer of a source; may be repeated. Default: all.",
)
def stream(
    sources: str,
    target: str | None,
    names: tuple[str, ...],
    until_caught_up: bool,
    timeout: float | None,
    writers: tuple[int, ...],
) -> None:
    """Commit the sources' changes to raw.wal_events as they occur.

    Creates missing slots and publications. A position is confirmed to the source only after everything before it has
    been committed to the lake. A source that fails is retried while the others go on; exit code 1 if one is in a failed
    state at the end.
    """
    from ingest.pipeline.ingest_jobs import Jobs

    _check_timeout(until_caught_up, timeout)
    settings = load(sources).only(names)
    most = max(source.writers for source in settings.sources.values())
    if any(writer > most for writer in writers):
        raise click.UsageError(f"No source in {sources} has more writers than {most}.")
    _run_jobs(Jobs(_lake(target), settings, snapshot=False, writers=writers or None), until_caught_up, timeout)


@cli.command()
@_SOURCES
@_TARGET
@click.option("--source", metavar="NAME", help="Only this source.")
@click.option(
    "--all", "everything", is_flag=True, help="All tables, from a new slot: the way out when the log was lost."
)
@click.option(
    "--writer",
    "writers",
    type=click.IntRange(min=1),
    multiple=True,
    metavar="N",
    help="The tables of this writer, from a new slot, where the log of one of several was lost; may be repeated.",
)
@click.argument("tables", nargs=-1, metavar="[TABLE]...")
def resnapshot(
    sources: str,
    target: str | None,
    source: str | None,
    everything: bool,
    writers: tuple[int, ...],
    tables: tuple[str, ...],
) -> None:
    """Queue new snapshots of tables, such as public.orders; `tidemark snapshot` or `run` then takes them.

    A new snapshot replaces what the lake has of the table: rows that the source no longer has leave. Until it is
    complete, definitions over the table wait; all others go on. End the stream before `--all`, and the stream of that
    writer before `--writer`.
    """
    from ingest.commands.resnapshot import queue_tables, resnapshot_sources, resnapshot_writers

    if [everything, bool(writers), bool(tables)].count(True) != 1:
        raise click.UsageError("Name tables, or give --all, or --writer.")
    settings, lake = load(sources), _lake(target)
    if everything:
        lines = resnapshot_sources(lake, settings, source)
    elif writers:
        lines = resnapshot_writers(lake, settings, writers, source)
    else:
        lines = queue_tables(lake, settings, tables, source)
    for line in lines:
        _echo(line)


@cli.command()
@_SOURCES
@_TARGET
@_ONLY
@_UNTIL
@_TIMEOUT
def run(sources: str, target: str | None, names: tuple[str, ...], until_caught_up: bool, timeout: float | None) -> None:
    """Stream, snapshot and run dbt after each commit: everything in one process.

    With --source the other sources may have separate processes; dbt models the committed data of all sources. A source
    that fails is retried while the others go on; exit code 1 if one is in a failed state at the end. A full disk, or a
    catalog that does not answer, is retried too.
    """
    from ingest.pipeline.run_loop import DbtRun, Pipeline
    from ingest.project.dbt_project import Project

    def log_run(dbt_run: DbtRun) -> None:
        log.info(
            "models ran in %.1f s%s", dbt_run.ended - dbt_run.started, "".join(f"; {line}" for line in dbt_run.waiting)
        )
        for line in dbt_run.changes:
            log.info("%s", line)

    log = logging.getLogger("tidemark")
    _check_timeout(until_caught_up, timeout)
    settings = load(sources).only(names)
    pipeline = Pipeline(_lake(target), settings, Project(target))
    _on_sigterm(pipeline.stop, "after the commits and the run of the models in progress")
    with pipeline.running(timeout):
        pipeline.loop(log_run, until_caught_up)


@cli.command()
@_SOURCES
@_TARGET
@click.option("--json", "as_json", is_flag=True, help="One JSON object, for programs.")
def status(sources: str, target: str | None, as_json: bool) -> None:
    """Show positions, lag, snapshots, definitions, the last release, failures and waiting definitions."""
    from ingest.commands.status import read_status, render_status

    settings = load(sources)
    found = read_status(_lake(target), settings)
    if as_json:
        click.echo(found.to_json())
    else:
        render_status(found, settings)


@cli.command()
@_SOURCES
@_TARGET
@click.option("--source", "name", metavar="NAME", help="Only this source.")
@click.option("--json", "as_json", is_flag=True, help="JSON lines, for programs.")
@click.option(
    "--wait",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    help="Fail after this many seconds without progress of the stream or the models.",
)
@click.argument("tables", nargs=-1, metavar="[TABLE]...")
def verify(
    sources: str, target: str | None, name: str | None, as_json: bool, wait: float, tables: tuple[str, ...]
) -> None:
    """Compare lake and source, row by row, at one position of the source's log.

    Reads the tables (none named: all) while jobs run, and waits until the models reach the position of the read, as
    long as they make progress. Rows that have changed since are not compared. Exit code 1 if a row differs.
    """
    from ingest.commands.verify import verify_tables

    settings, lake, equal = load(sources), _lake(target), True
    for verdict in verify_tables(lake, settings, wait, tables, name):
        equal = equal and verdict.is_equal
        click.echo(verdict.to_json() if as_json else printable(str(verdict)))
    if not equal:
        sys.exit(1)


@cli.command()
@_TARGET
@click.option("--json", "as_json", is_flag=True, help="JSON lines, for programs.")
def plan(target: str | None, as_json: bool) -> None:
    """Show what the next run will do with each definition.

    Each one is new, changed, unchanged, waiting, deleted or invalid, with the number of input rows to evaluate.
    Changes nothing. Exit code 1 if a definition is invalid.
    """
    from ingest.project.definition_plan import make_plan, render_plan

    found = make_plan(_lake(target).spark, target)
    if as_json:
        for step in found:
            click.echo(step.to_json())
    else:
        render_plan(found)
    if any(step.state == "invalid" for step in found):
        sys.exit(1)


@cli.command()
@_TARGET
@click.argument("definitions", nargs=-1, metavar="[DEFINITION]...")
def prune(target: str | None, definitions: tuple[str, ...]) -> None:
    """Drop the rows and the op logs of deleted definitions: of all, or of those named.

    `tidemark plan` lists them. A definition is deleted when its model is no longer in the project, or is no longer a
    definition.
    """
    from ingest.project.definition_plan import prune_definitions

    for name in prune_definitions(_lake(target).spark, definitions, target):
        _echo(f"{name}: dropped its rows and its op log")


@cli.command()
@_TARGET
@click.argument("definition")
@click.argument("bucket", default="[]")
@click.option("--after", type=click.IntRange(min=0), default=0, metavar="N", help="Only ops with a greater op_id.")
def ops(target: str | None, definition: str, bucket: str, after: int) -> None:
    """Print the op log of a bucket as JSON lines, from one Iceberg snapshot, in the order of op_id.

    DEFINITION is the name of a bucket model; BUCKET its values as a JSON array, or the one value: `tidemark ops
    carrier_flights UA` (behind `--` if it begins with a dash). Applied in order by (object_type, object_id, row_key),
    the ops give the bucket's rows; a CLEAR deletes everything applied before it. `data` is the exact text of which
    `checksum` is computed.

    A bucket that never had a row has no ops: nothing is printed except a note on stderr.
    """
    from ingest.commands.op_log import is_known, make_bucket_name, read_ops

    spark, name = _lake(target).spark, make_bucket_name(definition, bucket)
    for line in read_ops(spark, definition, name, after):
        click.echo(line)
    if not is_known(spark, definition, name):
        _echo(f"tidemark: {name} never had a row.", err=True)


@cli.command()
@_SOURCES
@_TARGET
@click.option("--from", "token", metavar="TOKEN", help="Start after this token; s0: all retained events. Default: now.")
@click.argument("source", required=False)
def tail(sources: str, target: str | None, token: str | None, source: str | None) -> None:
    """Print the changes of SOURCE as JSON lines, as soon as they are in the lake, until it is stopped.

    Every change is printed once, in commit order per writer; there is no order between writers. (Changes of a table
    that becomes a partition of another writer's table may be printed twice: docs/scaling.md.) Snapshot rows are not
    printed.

    The last line of a transaction per writer has a `token`; it is null in the others. `--from TOKEN` resumes exactly
    after that line: store the token together with the result of processing the lines. If changes after the token were
    purged or lost with the source's log, the command ends with an error that tells how to continue.

    A token is s123 or, if writers differ, m123~2.130: the minimum, and the writers that are ahead. Transactions are
    complete only below the minimum: one over tables of several writers is printed in parts, as each is committed.
    """
    from ingest.commands.tail import follow, parse_start

    settings = load(sources)
    begin_at = parse_start(settings, source, token)
    stopped = threading.Event()
    _on_sigterm(stopped.set)
    for line in follow(_lake(target), *begin_at, stopped.wait):
        click.echo(line)
        if stopped.is_set():
            return


@cli.command()
@_SOURCES
@_TARGET
def maintain(sources: str, target: str | None) -> None:
    """Keep the lake small: compact op logs and files, purge old rows, expire old Iceberg snapshots.

    Raw rows and tombstones are deleted retention_seconds after all models have passed them. `tidemark run` does this
    regularly; use this command if you run dbt yourself. Safe while jobs run: if a run and maintenance conflict, the one
    that publishes second publishes nothing and is repeated.
    """
    from ingest.pipeline.maintenance import run_maintenance
    from ingest.project.dbt_project import Project

    settings = load(sources).settings
    for line in run_maintenance(_lake(target), settings, Project(target)):
        _echo(line)


@cli.command()
@_TARGET
@click.option("--for", "given", multiple=True, metavar="NAME=VALUE", help="A value of the request; may be repeated.")
@click.option("--json", "as_json", is_flag=True, help="JSON lines, for programs.")
def buckets(target: str | None, given: tuple[str, ...], as_json: bool) -> None:
    """Print the buckets that a request may see, by the lookups (materialized: bucket_lookup).

    `tidemark buckets --for user_id=42` queries the lookups with the parameter user_id alone, or with none.
    """
    from ingest.commands.bucket_lookup import find_grants

    pairs = [pair.partition("=") for pair in given]
    request = {name: value for name, _, value in pairs}
    if not all(name and sign for name, sign, _ in pairs):
        raise click.UsageError("Write --for NAME=VALUE.")
    if len(request) < len(pairs):
        raise click.UsageError("Give each name only once.")
    for grant in find_grants(_lake(target).spark, request, target):
        click.echo(grant.to_json() if as_json else printable(grant.bucket))


@cli.command()
@click.option("--seconds", default=20.0, show_default=True, help="How long the steady state is measured.")
@click.option("--rate", default=500, show_default=True, help="Row changes per second.")
def demo(seconds: float, rate: int) -> None:
    """Replicate real flights from an embedded Postgres while they change, and compare the lake with the source.

    Then one definition is changed and rebuilt alone. The lake stays for inspection.
    """
    from ingest.demo import play

    play(seconds, rate)


def _lake(target: str | None) -> "Lake":
    from ingest.lake import Lake
    from ingest.lake.spark_session import open_session

    return Lake(open_session(target))


def _run_jobs(jobs: "Jobs", until_caught_up: bool, timeout: float | None) -> None:
    _on_sigterm(jobs.request_stop, "after the commits in progress")
    with jobs.running(timeout):
        jobs.wait(until_caught_up)


def _check_timeout(until_caught_up: bool, timeout: float | None) -> None:
    if timeout is not None and not until_caught_up:
        raise click.UsageError("--timeout requires --until-caught-up.")


def _on_sigterm(stop: Callable[[], None], when: str = "") -> None:
    """Calls `stop` on SIGTERM and SIGINT. when: what the command completes first; logged at once.

    In a thread, as a signal handler may interrupt code that holds the lock of the log or of an event.
    """

    def work() -> None:
        if when:
            logging.getLogger("tidemark").info("stopping %s", when)
        stop()

    def end(*_: object) -> None:
        threading.Thread(target=work, name="stopping").start()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)


class _LogFile(RotatingFileHandler):
    """Prints once that the log can't be written, and once that it can be again."""

    _fails = False

    def emit(self, record: logging.LogRecord) -> None:
        self._fails, had_failed = False, self._fails
        super().emit(record)
        if self._fails is not had_failed:
            state = "can't be written" if self._fails else "is written again"
            with suppress(OSError):  # the screen may be a file on the same disk
                _echo(f"tidemark: the log {state}: {LOG}.", err=True)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: ARG002, N802  # logging's name
        self._fails = True
        if self.stream is not None:  # otherwise its buffer would be written later, and again with each record
            with suppress(OSError):
                self.stream.close()
            self.stream = None  # type: ignore[assignment]  # opened by the next record


class _Redacted(logging.Formatter):
    """Removes passwords. Messages are one line and tracebacks are indented, so neither can look like another record."""

    def format(self, record: logging.LogRecord) -> str:
        message = printable(redact(record.getMessage()))
        return super().format(logging.makeLogRecord({**vars(record), "msg": message, "args": (), "exc_text": None}))

    def formatException(self, ei: Any) -> str:  # noqa: N802  # logging's name
        return "\n".join(f"    {printable(line)}" for line in redact(super().formatException(ei)).split("\n"))


class _Brief(_Redacted):
    """Removes tracebacks too."""

    def format(self, record: logging.LogRecord) -> str:
        return super().format(logging.makeLogRecord({**vars(record), "exc_info": None, "exc_text": None}))


def _find_spark_exit() -> TidemarkError | None:
    """The error if Spark's Java process has ended: it is the cause of any other error."""
    spark = sys.modules.get("ingest.lake.spark_session")  # not imported by commands without Spark
    return spark.find_exit_failure() if spark else None


def _environment_error(error: Exception) -> TidemarkError | None:
    """The error as Unavailable, if its cause is the environment, such as a catalog that does not answer."""
    from ingest.common.environment_errors import unavailable

    return unavailable(error, "the lake")


def _text(error: Exception) -> str:
    text = text_of(error)
    return "Spark has ended without an error message" if text is None else one_line(redact(text))[:300]


def _set_pwd() -> None:
    """Sets PWD to this folder, as shells do: the profile derives the lake's path from it."""
    current = Path(os.environ.get("PWD", ""))
    with suppress(OSError):
        if current.is_absolute() and current.samefile("."):
            return
    os.environ["PWD"] = str(Path.cwd())


def _log_to_file() -> None:
    try:
        LOG.parent.mkdir(exist_ok=True)
        to_file = _LogFile(LOG, maxBytes=10_000_000, backupCount=3)
    except OSError as error:
        raise UsageError(
            f"the log can't be written ({error.strerror})", str(LOG), "Start Tidemark in a folder that you may write to"
        ) from None
    logging.raiseExceptions = False  # otherwise a full disk prints a traceback for each record
    to_file.setFormatter(_Redacted("%(asctime)s %(levelname)s %(name)s %(threadName)s: %(message)s"))
    to_screen = logging.StreamHandler()
    to_screen.setFormatter(_Brief("%(asctime)s %(message)s", "%H:%M:%S"))
    logging.getLogger().addHandler(to_file)  # for libraries; otherwise py4j prints the traceback of a lost connection
    for name in ("ingest", "tidemark"):
        logger = logging.getLogger(name)
        logger.setLevel(logging.INFO)
        logger.propagate = False
        logger.addHandler(to_file)
        logger.addHandler(to_screen)


def _end(message: str, code: int) -> None:
    _echo(f"tidemark: {message}", err=True)
    sys.exit(code)


def _echo(line: str, *, err: bool = False) -> None:
    """Prints one line; control characters in names are escaped."""
    click.echo(printable(line), err=err)
