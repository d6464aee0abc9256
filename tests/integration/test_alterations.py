"""Every kind of DDL, one table for each, all in one source: after each alteration the lake equals the source."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from ingest.config.job_settings import JobSettings
from ingest.config.sources_file import PostgresSource
from ingest.lake import Lake, SourceTable
from ingest.lake.source_tables import ENDED
from tests.conftest import Database
from tests.harness.alterations import Alteration, Outcome, Step
from tests.harness.altered_columns import COLUMNS
from tests.harness.altered_identities import IDENTITIES
from tests.harness.altered_tables import LEFT_OUT, NAMES, PARTITIONS, VALUES
from tests.harness.postgres_jobs import PostgresJobs

ALTERATIONS = (*COLUMNS, *IDENTITIES, *NAMES, *LEFT_OUT, *PARTITIONS, *VALUES)


@dataclass
class ReadOnce(PostgresJobs):
    """Reads the lake after `settle`, once for all tables."""

    tables: dict[str, SourceTable] = field(default_factory=dict)
    by_table: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    by_snapshot: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def settle(self) -> None:
        super().settle()
        self.tables = self.lake.tables.read(self.source.name)
        self.by_table, self.by_snapshot = defaultdict(list), defaultdict(list)
        for event in super().events():
            self.by_table[event["table_id"]].append(event)
        for row in self.rows_of_snapshots(f"r.source = '{self.source.name}'"):
            self.by_snapshot[row["snapshot_id"]].append(row)

    def events(self, table_id: str | None = None) -> list[dict[str, Any]]:
        return self.by_table[str(table_id)]

    def snapshot_rows(self, table: SourceTable) -> list[dict[str, Any]]:
        return self.by_snapshot[str(table.snapshot_id)]

    def live(self, table_name: str) -> SourceTable | None:
        found = [t for t in self.tables.values() if t.table_name == table_name and t.state != ENDED]
        assert len(found) < 2, "two generations are active"
        return found[0] if found else None

    def table(self, table_name: str) -> SourceTable:
        found = self.live(table_name)
        assert found is not None, "it is not in the lake"
        return found

    def assert_outcome(
        self, name: str, outcome: Outcome, before: SourceTable | None, first: SourceTable | None
    ) -> None:
        """before: the table before the step. first: the table before the first step."""
        if outcome is Outcome.UNASKED:
            return
        now = self.live(name)
        if outcome in {Outcome.LEFT_OUT, Outcome.ENDED}:
            assert now is None, "it is in the lake"
        else:
            assert now is not None, "it is not in the lake"
        if outcome in {Outcome.GENERATION, Outcome.ENDED}:
            assert before is not None
            assert self.tables[before.table_id].state == ENDED
            assert self.tables[before.table_id].ended_lsn is not None
        if now is None:
            return
        if outcome is Outcome.FIRST:
            assert first is not None
            assert now.table_id == first.table_id
        if outcome in {Outcome.SAME, Outcome.KEPT, Outcome.ANEW}:
            assert before is not None
            assert now.table_id == before.table_id, "it is another generation"
            assert (now.snapshot_id == before.snapshot_id) == (outcome is not Outcome.ANEW), f"not {outcome.value}"
        if outcome is not Outcome.KEPT:
            lake, source = self.lake_rows(name), self.source_rows(name)
            assert lake == source, f"only lake {lake - source}, only source {source - lake}"


@pytest.fixture
def jobs(lake: Lake, new_source: Any, settings: JobSettings) -> Iterator[ReadOnce]:
    source: PostgresSource = new_source(tables=("public.*", "!public.hidden_*"))
    found = ReadOnce(lake, source, settings)
    yield found
    found.close()


@dataclass
class Tables:
    """One table for each alteration."""

    jobs: ReadOnce
    database: Database
    altered: dict[str, Alteration]
    failures: list[str] = field(default_factory=list)
    history: defaultdict[str, list[SourceTable | None]] = field(default_factory=lambda: defaultdict(list))

    def alter(self, number: int) -> None:
        """The statements of this step of all tables; step 0 creates the tables."""
        for table, step in self._steps(number):
            for statement in step.statements:
                self.database.execute(statement.format(t=table, publication=self.jobs.source.publication))

    def compare(self, number: int) -> None:
        for table, step in self._steps(number):
            name, was = f"public.{table}", self.history[table]
            try:
                self.jobs.assert_outcome(name, step.outcome, was[-1] if was else None, was[0] if was else None)
                if step.check:
                    step.check(self.jobs, name)
            except AssertionError as error:
                self._fail(table, f"step {number}, {step.outcome.name}: {error}")
            was.append(self.jobs.live(name))

    def compare_log(self, messages: list[str]) -> None:
        """The log has each table's expected message; for a changed view, once."""
        for table, alteration in self.altered.items():
            text = alteration.said.format(t=table)
            count = sum(text in message for message in messages)
            if text and (not count or (count > 1 and "column" in text)):
                self._fail(table, f"said {count} times: {text}")

    def _steps(self, number: int) -> list[tuple[str, Step]]:
        rounds = {table: (Step(one.created, one.first), *one.steps) for table, one in self.altered.items()}
        return [(table, steps[number]) for table, steps in rounds.items() if number < len(steps)]

    def _fail(self, table: str, what: str) -> None:
        self.failures.append(f"{table}, {self.altered[table].name}, {what}")


def test_after_each_alteration_the_lake_equals_the_source(
    jobs: ReadOnce, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    tables = Tables(jobs, database, {f"t{number:03}": one for number, one in enumerate(ALTERATIONS)})
    for number in range(1 + max(len(alteration.steps) for alteration in ALTERATIONS)):
        tables.alter(number)
        jobs.settle()
        tables.compare(number)
        if number == 2:  # Views whose columns changed earlier, which the log reports once
            tables.failures += [message for message in caplog.messages if ": column added" in message]
    tables.compare_log(caplog.messages)
    assert not tables.failures, "\n".join(tables.failures)
