"""`tidemark tail`."""

import threading

import click

from ingest.cli import options
from ingest.cli.lake_session import open_lake
from ingest.cli.stop_signals import call_on_stop_signal
from ingest.config.sources_file import load


@click.command()
@options.SOURCES
@options.TARGET
@click.option("--from", "token", metavar="TOKEN", help="Start after this token; s0: all retained events. Default: now.")
@click.argument("source", required=False)
def tail(sources: str, target: str | None, token: str | None, source: str | None) -> None:
    """Print the changes of SOURCE as JSON lines, as soon as they are in the lake, until it is stopped.

    Every change is printed once, in commit order per writer; there is no order between writers. Snapshot rows are not
    printed. Changes of a table that becomes a partition of another writer's table may be printed twice.

    The last line of a transaction per writer has a `token`; it is null in the others. `--from TOKEN` resumes exactly
    after that line: store the token together with the result of processing the lines. If changes after the token were
    purged or lost with the source's log, the command ends with an error that tells how to continue.

    A token is s123 or, if writers differ, m123~2.130: the minimum, and the writers that are ahead. Transactions are
    complete only below the minimum: one over tables of several writers is printed in parts, as each is committed.
    """
    from ingest.commands.tail import follow, parse_start

    settings = load(sources)
    start = parse_start(settings, source, token)
    stop_event = threading.Event()
    call_on_stop_signal(stop_event.set)
    for line in follow(open_lake(target, is_short_command=True), *start, stop_event.wait):
        click.echo(line)
        if stop_event.is_set():
            return
