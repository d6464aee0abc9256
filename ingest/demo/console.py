"""Prints the demo's output: a line for each step, a status line, some tables."""

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from typing_extensions import Self

from ingest.demo.compare import Comparison
from ingest.pipeline.run_loop import DbtRun
from ingest.project.dbt_package import DEFINITIONS


class DemoConsole:
    """Prints to stdout; the status line is shown on terminals only."""

    def __init__(self) -> None:
        self._console = Console(highlight=False)
        self._status = self._console.status("")
        self._started_at = time.monotonic()

    def __enter__(self) -> Self:
        # Log lines of the jobs go to the file only: they would break the status line.
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

    def print_line(self, text: str) -> None:
        """Prints a line with the seconds since the start."""
        self._console.print(f"[dim]{time.monotonic() - self._started_at:6.1f} s[/]  {text}")

    def set_status(self, text: str) -> None:
        """Sets the text of the status line."""
        self._status.update(text)

    def print_run(self, run: DbtRun) -> None:
        """Prints the duration of a run of the models, and the result of each definition."""
        definitions = [outcome for outcome in run.outcomes if outcome.kind in DEFINITIONS]
        self.print_line(f"models ran in {run.ended - run.started:.1f} s")
        for outcome in definitions:
            self._console.print(f"[dim]            {escape(f'{outcome.name}: {outcome.message}')}[/]")

    def print_bucket(self, name: str, states: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        """Prints the rows of a bucket at several points in time, given by their labels."""
        columns = [column for rows in states.values() for row in rows for column in row]
        names = list(dict.fromkeys(columns))
        table = Table("", *names, title=f"The bucket {name}", title_justify="left")
        for label, rows in states.items():
            for row in rows:
                table.add_row(label, *(str(row[column]) for column in names))
        self._console.print(table)

    def print_edit(self, name: str, old: str, new: str) -> None:
        """Prints the change of a definition's SQL."""
        self.print_line(f"one definition is edited, {name}: [red]{old}[/] is now [green]{new}[/]. The plan:")

    def print_comparison(self, comparison: Comparison) -> None:
        """Prints the result of a comparison."""
        result = "[red]differs[/]" if comparison.problem else "[green]equal[/]"
        self.print_line(f"{comparison.name:<32} {comparison.against:<20} {comparison.rows:>9,} rows  {result}")

    def print_report(self, lines: Mapping[str, str], hints: str) -> None:
        """Prints the report, and hints how to continue."""
        table = Table(show_header=False, title="Results", title_justify="left")
        for label, value in lines.items():
            table.add_row(label, value)
        self._console.print(table)
        self._console.print(hints, soft_wrap=True, markup=False)
