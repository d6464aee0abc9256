"""The `tidemark` command. Each command says what it does in its help; errors are one line on stderr.

Exit codes: 0 done, 1 a failure, 2 wrong usage. Tracebacks of unexpected errors go to `logs/tidemark.log`.
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
    help="For cron: end with exit code 0 when all that was committed before the start is landed "
    "(`tidemark run`: and published). "
    "Otherwise run until SIGTERM.",
)
_TIMEOUT = click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="With --until-caught-up: end with exit code 1 after this time, and say what was not caught up.",
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
    help="The file that says what to replicate.",
)


def main() -> None:
    """Entry point of the console command."""
    try:
        _log_to_file()
        _tell_folder()
        cli.main(standalone_mode=False)
    except TidemarkError as error:
        known = _spark_ended() or error
        _end(str(known), known.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        sys.exit(130)
    except Exception as error:
        if found := _spark_ended() or _withheld(error):
            _end(str(found), found.exit_code)
        logging.getLogger(__name__).exception("not foreseen")
        _end(f"{type(error).__name__}: {_text(error)}. {LOG} has the traceback.", 1)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="tidemark")
def cli() -> None:
    """Replicate databases into a lakehouse, and keep slices of them, defined in SQL, up to date.

    Begin with `tidemark demo`, or write sources.yml, then: `tidemark check`, `tidemark codegen`, `tidemark run`.
    """


@cli.command()
@_SOURCES
@_TARGET
@click.option("--strict", is_flag=True, help="Exit code 1 for warnings too, as for CI.")
@click.option("--json", "as_json", is_flag=True, help="JSON lines, for programs.")
def check(sources: str, target: str | None, strict: bool, as_json: bool) -> None:
    """Look for what would go wrong, and say what to do about it.

    Permissions, wal_level, replica identities, versions, the Spark profile, the catalog, definitions. Changes nothing
    in the sources; the catalog is tried in a scratch namespace, which is removed. Exit code 1 if a finding is an error;
    a table that can't be replicated and that nothing requires is a warning. Each line of --json is an object with level
    (error, warning, ok), source (null if the finding concerns none), subject, message and fix.
    """
    from ingest.commands.check import check_all
    from ingest.common import findings

    found = check_all(load(sources), target)
    for line in [each.to_json() for each in found] if as_json else findings.lines(found):
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
    """Write staging views: models/staging/stg_<source>__<table>.sql and .yml from the source's catalogue.

    They are yours to edit. A file that differs from what would be written is left as it is, and named: `--force
    public.orders` writes over the files of that table. TABLE is a name or a pattern as in sources.yml; '*.*' is all.

    A name in use stays with its table: another table whose view would have the same name gets a hash behind it. Spark
    tries each new view before its file is written. Exit code 1 if Spark refuses one, or a source can't be read; the
    views of the others are written.
    """
    from ingest.codegen.view_trial import Trial
    from ingest.commands.codegen import Codegen

    settings = load(sources)
    if not Path("dbt_project.yml").is_file():
        raise UsageError("there is no dbt project here", "dbt_project.yml", "Call it in the project's folder")
    if force and not tables:
        fix = "Name them, as in `tidemark codegen --force public.orders`; '*.*' is all"
        raise UsageError("the tables to write over are missing", "--force", fix)
    command = Codegen(Trial(lambda: _lake(target).spark).problem, tables=tables, force=force)
    refused: list[str] = []
    failures: list[Failure] = []
    for source in [settings.source(name)] if name else settings.sources.values():
        try:
            if shows:
                lines = list(command.diff(source, settings.settings))
            else:
                done = command.write(source, settings.settings)
                lines, refused = done.lines, refused + done.refused
        except Failure as failure:  # the other sources' views are written all the same
            failures.append(failure)
            lines = []
        for line in lines:
            _echo(line)
    for each in failures[:-1]:
        _echo(f"tidemark: {each}", err=True)
    if failures:
        raise failures[-1]
    command.check_named()
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

    New tables are queued automatically. Runs beside `tidemark stream`; several may run at once. A source that
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
    help="Only this one of a source's writers, in a process of its own; may be repeated. Default: all.",
)
def stream(
    sources: str,
    target: str | None,
    names: tuple[str, ...],
    until_caught_up: bool,
    timeout: float | None,
    writers: tuple[int, ...],
) -> None:
    """Land the sources' changes in raw.wal_events as they are committed.

    Makes slots and publications if they are missing. The source is acknowledged only what is in the lake. A source that
    fails is retried while the others go on; exit code 1 if one is in a failed state at the end.
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
    from ingest.commands.resnapshot import queue_tables, start_over, start_over_writers

    if [everything, bool(writers), bool(tables)].count(True) != 1:
        raise click.UsageError("Name tables, or give --all, or --writer.")
    settings, lake = load(sources), _lake(target)
    if everything:
        lines = start_over(lake, settings, source)
    elif writers:
        lines = start_over_writers(lake, settings, writers, source)
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
    """Stream, snapshot, and run dbt after what lands: everything, in one warm process.

    With --source the other sources may have processes of their own; dbt models what is landed of all sources. A source
    that fails is retried while the others go on; exit code 1 if one is in a failed state at the end. A full disk, or a
    catalog that does not answer, is retried too.
    """
    from ingest.pipeline.run_loop import ModelRun, Pipeline
    from ingest.project.dbt_project import Project

    def said(done: ModelRun) -> None:
        log.info("modelled in %.1f s%s", done.ended - done.started, "".join(f"; {line}" for line in done.waiting))
        for line in done.changes:
            log.info("%s", line)

    log = logging.getLogger("tidemark")
    _check_timeout(until_caught_up, timeout)
    settings = load(sources).only(names)
    pipeline = Pipeline(_lake(target), settings, Project(target))
    _on_sigterm(pipeline.stop, "after the commits and the run of the models that are under way")
    with pipeline.running(timeout):
        pipeline.loop(said, until_caught_up)


@cli.command()
@_SOURCES
@_TARGET
@click.option("--json", "as_json", is_flag=True, help="One JSON object, for programs.")
def status(sources: str, target: str | None, as_json: bool) -> None:
    """Show how far sources, snapshots and definitions are: lag, last release, failures, what waits for what."""
    from ingest.commands.status import read, render

    settings = load(sources)
    found = read(_lake(target), settings)
    if as_json:
        click.echo(found.to_json())
    else:
        render(found, settings)


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

    Reads the tables (none named: all) again, beside running jobs, and waits until the models have reached the position
    at which it read, for as long as they make progress. Rows that have changed since are not compared. Exit code 1 if a
    row differs.
    """
    from ingest.commands.verify import verify_all

    settings, lake, equal = load(sources), _lake(target), True
    for verdict in verify_all(lake, settings, wait, tables, name):
        equal = equal and verdict.is_equal
        click.echo(verdict.to_json() if as_json else printable(str(verdict)))
    if not equal:
        sys.exit(1)


@cli.command()
@_TARGET
@click.option("--json", "as_json", is_flag=True, help="JSON lines, for programs.")
def plan(target: str | None, as_json: bool) -> None:
    """Say what the next run will do with each definition.

    It is new, changed, unchanged, waiting, deleted or invalid; and how many rows of its inputs will be evaluated.
    Changes nothing. Exit code 1 if a definition is invalid.
    """
    from ingest.project.definition_plan import make, render

    found = make(_lake(target).spark, target)
    if as_json:
        for step in found:
            click.echo(step.to_json())
    else:
        render(found)
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
    from ingest.project.definition_plan import prune

    for name in prune(_lake(target).spark, definitions, target):
        _echo(f"{name}: dropped its rows and its op log")


@cli.command()
@_TARGET
@click.argument("definition")
@click.argument("bucket", default="[]")
@click.option("--after", type=click.IntRange(min=0), default=0, metavar="N", help="Only ops with a greater op_id.")
def ops(target: str | None, definition: str, bucket: str, after: int) -> None:
    """Print the op log of a bucket as JSON lines, from one snapshot, in the order of op_id.

    DEFINITION is the name of a bucket model; BUCKET its values as a JSON array, or the one value: `tidemark ops
    carrier_flights UA` (behind `--` if it begins with a dash). Applied in order by (object_type, object_id, row_key),
    the ops give the bucket's rows; a CLEAR says to forget all that was applied before it. `data` is the text that
    `checksum` is of.

    A bucket that never had a row has no ops: nothing is printed, but for a note on stderr.
    """
    from ingest.commands.op_log import bucket_name, is_known, read

    spark, name = _lake(target).spark, bucket_name(definition, bucket)
    for line in read(spark, definition, name, after):
        click.echo(line)
    if not is_known(spark, definition, name):
        _echo(f"tidemark: {name} never had a row.", err=True)


@cli.command()
@_SOURCES
@_TARGET
@click.option("--from", "token", metavar="TOKEN", help="Go on after this token; s0: all that is kept. Default: now.")
@click.argument("source", required=False)
def tail(sources: str, target: str | None, token: str | None, source: str | None) -> None:
    """Print the changes of SOURCE as JSON lines, as soon as they are landed, until it is stopped.

    Every change comes once, each writer's in the order of commits; between writers there is no order. (Of a table that
    becomes a partition of another writer's they may come twice: docs/scaling.md.) Snapshot rows are no changes.

    The last line that a writer has of a transaction has a `token`, the others null. `--from TOKEN` goes on with what
    comes after that line, nothing twice and nothing left out: store the token with what was done with the lines. Where
    changes after it were purged, or were lost with the source's log, it ends with an error that says how to go on.

    A token is s123 or, where writers differ, m123~2.130: the minimum, and who is ahead. Transactions are whole only
    below the minimum: those over tables of several writers come in parts, each when it is landed.
    """
    from ingest.commands.tail import begin, follow

    settings = load(sources)
    begin_at = begin(settings, source, token)
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
    """Keep the lake small: compact op logs and files, purge what is passed, forget old Iceberg snapshots.

    Raw rows and tombstones go retention_seconds after all models have passed them. `tidemark run` does it now and
    then; use this command if you run dbt yourself. Safe beside running jobs: if a run and maintenance conflict, the
    later one publishes nothing and is repeated.
    """
    from ingest.pipeline.maintenance import maintain as due
    from ingest.project.dbt_project import Project

    settings = load(sources).settings
    for line in due(_lake(target), settings, Project(target)):
        _echo(line)


@cli.command()
@_TARGET
@click.option("--for", "given", multiple=True, metavar="NAME=VALUE", help="What the request says; may be repeated.")
@click.option("--json", "as_json", is_flag=True, help="JSON lines, for programs.")
def buckets(target: str | None, given: tuple[str, ...], as_json: bool) -> None:
    """Print the buckets that a request may see, as the lookups (materialized: bucket_lookup) have them.

    `tidemark buckets --for user_id=42` asks those that ask for user_id alone, or for nothing.
    """
    from ingest.commands.bucket_lookup import resolve

    pairs = [pair.partition("=") for pair in given]
    request = {name: value for name, _, value in pairs}
    if not all(name and sign for name, sign, _ in pairs):
        raise click.UsageError("Write --for NAME=VALUE.")
    if len(request) < len(pairs):
        raise click.UsageError("Give each name once: a request has one value of it.")
    for grant in resolve(_lake(target).spark, request, target):
        click.echo(grant.to_json() if as_json else printable(grant.bucket))


@cli.command()
@click.option("--seconds", default=20.0, show_default=True, help="How long the steady state is measured.")
@click.option("--rate", default=500, show_default=True, help="Row changes per second.")
def demo(seconds: float, rate: int) -> None:
    """Replicate real flights from an embedded Postgres while they change, and compare all with the source.

    Then one definition is changed, and rebuilt alone. Leaves the lake for you to look at.
    """
    from ingest.demo import play

    play(seconds, rate)


def _lake(target: str | None) -> "Lake":
    from ingest.lake import Lake
    from ingest.lake.spark_session import session

    return Lake(session(target))


def _run_jobs(jobs: "Jobs", until_caught_up: bool, timeout: float | None) -> None:
    _on_sigterm(jobs.end, "after the commits that are under way")
    with jobs.running(timeout):
        jobs.wait(until_caught_up)


def _check_timeout(until_caught_up: bool, timeout: float | None) -> None:
    if timeout is not None and not until_caught_up:
        raise click.UsageError("--timeout is for --until-caught-up.")


def _on_sigterm(stop: Callable[[], None], when: str = "") -> None:
    """Calls `stop` on SIGTERM and SIGINT. when: after what the command ends, which is logged at once.

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
    """Says once on the screen that it can't be written, and once that it is written again."""

    _fails = False

    def emit(self, record: logging.LogRecord) -> None:
        self._fails, before = False, self._fails
        super().emit(record)
        if self._fails is not before:
            now = "can't be written" if self._fails else "is written again"
            with suppress(OSError):  # the screen may be a file on the same disk
                _echo(f"tidemark: the log {now}: {LOG}.", err=True)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: ARG002, N802  # logging's name
        self._fails = True
        if self.stream is not None:  # else it would write its buffer later, and again with each record
            with suppress(OSError):
                self.stream.close()
            self.stream = None  # type: ignore[assignment]  # opened by the next record


class _Redacted(logging.Formatter):
    """Removes passwords. A message is one line and a traceback is indented: neither can look like another record."""

    def format(self, record: logging.LogRecord) -> str:
        message = printable(redact(record.getMessage()))
        return super().format(logging.makeLogRecord({**vars(record), "msg": message, "args": (), "exc_text": None}))

    def formatException(self, ei: Any) -> str:  # noqa: N802  # logging's name
        return "\n".join(f"    {printable(line)}" for line in redact(super().formatException(ei)).split("\n"))


class _Brief(_Redacted):
    """Removes tracebacks too."""

    def format(self, record: logging.LogRecord) -> str:
        return super().format(logging.makeLogRecord({**vars(record), "exc_info": None, "exc_text": None}))


def _spark_ended() -> TidemarkError | None:
    """Why Spark's Java process has ended, if it has: any other error follows from that."""
    spark = sys.modules.get("ingest.lake.spark_session")  # a command that has not started Spark need not load it
    return spark.ended() if spark else None


def _withheld(error: Exception) -> TidemarkError | None:
    """The error as Unavailable, if its cause is the environment, such as a catalog that does not answer."""
    from ingest.common.environment_errors import unavailable

    return unavailable(error, "the lake")


def _text(error: Exception) -> str:
    text = text_of(error)
    return "Spark has ended, and can't say what it was" if text is None else one_line(redact(text))[:300]


def _tell_folder() -> None:
    """Sets PWD, from which the profile derives the lake's path, to this folder: not every caller does, as shells do."""
    told = Path(os.environ.get("PWD", ""))
    with suppress(OSError):
        if told.is_absolute() and told.samefile("."):
            return
    os.environ["PWD"] = str(Path.cwd())


def _log_to_file() -> None:
    try:
        LOG.parent.mkdir(exist_ok=True)
        to_file = _LogFile(LOG, maxBytes=10_000_000, backupCount=3)
    except OSError as error:
        raise UsageError(
            f"the log can't be written ({error.strerror})", str(LOG), "Start in a folder of yours"
        ) from None
    logging.raiseExceptions = False  # on a full disk it would print a traceback for each record
    to_file.setFormatter(_Redacted("%(asctime)s %(levelname)s %(name)s %(threadName)s: %(message)s"))
    to_screen = logging.StreamHandler()
    to_screen.setFormatter(_Brief("%(asctime)s %(message)s", "%H:%M:%S"))
    logging.getLogger().addHandler(to_file)  # for libraries; else py4j would print the traceback of a lost connection
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
