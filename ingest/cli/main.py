"""Entry point of the `tidemark` command. Each command is described by its help; errors are one line on stderr.

Exit codes: 0 success, 1 failure, 2 wrong usage. Tracebacks of unexpected errors go to `logs/tidemark.log`.
"""

import logging
import os
import sys
from contextlib import suppress
from pathlib import Path

import click

from ingest.cli.apply_command import apply
from ingest.cli.buckets_command import buckets
from ingest.cli.check_command import check
from ingest.cli.codegen_command import codegen
from ingest.cli.demo_command import demo
from ingest.cli.init_command import init
from ingest.cli.log_files import LOG, log_to_file
from ingest.cli.maintain_command import maintain
from ingest.cli.ops_command import ops
from ingest.cli.plan_command import plan
from ingest.cli.prune_command import prune
from ingest.cli.resnapshot_command import resnapshot
from ingest.cli.run_command import run
from ingest.cli.set_writers_command import set_writers
from ingest.cli.snapshot_command import snapshot
from ingest.cli.status_command import status
from ingest.cli.stream_command import stream
from ingest.cli.tail_command import tail
from ingest.cli.terminal import print_line
from ingest.cli.verify_command import verify
from ingest.common.errors import TidemarkError, one_line, redact, text_of


def main() -> None:
    """Entry point of the console command."""
    try:
        if sys.argv[1:2] != ["init"]:  # there is no project yet that the log could be in
            log_to_file()
        _set_pwd()
        cli.main(standalone_mode=False)
    except TidemarkError as error:
        failure = _find_spark_exit() or error
        _exit_with_error(str(failure), failure.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        sys.exit(130)
    except Exception as error:
        if known_error := _find_spark_exit() or _find_environment_error(error):
            _exit_with_error(str(known_error), known_error.exit_code)
        logging.getLogger(__name__).exception("unexpected error")
        _exit_with_error(f"{type(error).__name__}: {_describe_error(error)}. {LOG} has the traceback.", 1)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="tidemark")
def cli() -> None:
    """Replicate databases into a lakehouse, and maintain slices of them that are defined in SQL.

    Start with `tidemark demo`, or `tidemark init shop`, then: `tidemark check`, `tidemark codegen`, `tidemark run`.
    """


for _command in (
    init,
    check,
    codegen,
    snapshot,
    stream,
    resnapshot,
    set_writers,
    run,
    status,
    verify,
    plan,
    apply,
    prune,
    ops,
    tail,
    maintain,
    buckets,
    demo,
):
    cli.add_command(_command)


def _find_spark_exit() -> TidemarkError | None:
    """The error if Spark's Java process has ended: it is the cause of any other error."""
    spark = sys.modules.get("ingest.lake.spark_session")  # not imported by commands without Spark
    return spark.find_exit_failure() if spark else None


def _find_environment_error(error: Exception) -> TidemarkError | None:
    """The error as Unavailable, if its cause is the environment, such as a catalog that does not answer."""
    from ingest.common.environment_errors import unavailable

    return unavailable(error, "the lake")


def _describe_error(error: Exception) -> str:
    text = text_of(error)
    return "Spark has ended without an error message" if text is None else one_line(redact(text))[:300]


def _set_pwd() -> None:
    """Sets PWD to this folder, as shells do: the profile derives the lake's path from it."""
    shell_folder = Path(os.environ.get("PWD", ""))
    with suppress(OSError):
        if shell_folder.is_absolute() and shell_folder.samefile("."):
            return
    os.environ["PWD"] = str(Path.cwd())


def _exit_with_error(message: str, code: int) -> None:
    print_line(f"tidemark: {message}", err=True)
    sys.exit(code)
