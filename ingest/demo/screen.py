"""What the demo prints: a line for each thing that is done, a moving status, some tables."""

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from typing_extensions import Self

from ingest.demo.compare import Compared
from ingest.pipeline.run_loop import DbtRun


class Screen:
    """Prints to stdout; the status is seen on terminals only."""

    def __init__(self) -> None:
        self._console = Console(highlight=False)
        self._status = self._console.status("")
        self._began = time.monotonic()

    def __enter__(self) -> Self:
        # The jobs' own log lines stay in the file: they would tear the status apart.
        for name in ("ingest", "tidemark"):
            logger = logging.getLogger(name)
            logger.propagate = False
            for handler in logger.handlers:
                if type(handler) is logging.StreamHandler:
                    handler.setLevel(logging.WARNING)
        self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._status.stop()

    def say(self, text: str) -> None:
        """A line, with the seconds since the start."""
        self._console.print(f"[dim]{time.monotonic() - self._began:6.1f} s[/]  {text}")

    def show(self, text: str) -> None:
        """The status."""
        self._status.update(text)

    def run(self, run: DbtRun) -> None:
        """A run of the models: how long, and what became of each definition."""
        definitions = [o for o in run.outcomes if o.report.get("definition_hash")]
        self.say(f"models ran in {run.ended - run.started:.1f} s")
        for outcome in definitions:
            self._console.print(f"[dim]            {escape(f'{outcome.name}: {outcome.message}')}[/]")

    def bucket(self, name: str, moments: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        """A bucket's rows at several moments."""
        columns = [column for rows in moments.values() for row in rows for column in row]
        names = list(dict.fromkeys(columns))
        table = Table("", *names, title=f"The bucket {name}", title_justify="left")
        for moment, rows in moments.items():
            for row in rows:
                table.add_row(moment, *(str(row[column]) for column in names))
        self._console.print(table)

    def edit(self, name: str, old: str, new: str) -> None:
        """A change of a definition's SQL."""
        self.say(f"one definition is changed, {name}: [red]{old}[/] is now [green]{new}[/]. The plan:")

    def compared(self, one: Compared) -> None:
        """A comparison that was made."""
        result = "[red]differs[/]" if one.problem else "[green]equal[/]"
        self.say(f"{one.name:<32} {one.against:<20} {one.rows:>9,} rows  {result}")

    def figures(self, figures: Mapping[str, str], hints: str) -> None:
        """The last table, and how to go on."""
        table = Table(show_header=False, title="What it came to", title_justify="left")
        for label, value in figures.items():
            table.add_row(label, value)
        self._console.print(table)
        self._console.print(hints, soft_wrap=True, markup=False)
