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
from tests.harness.altered_tables import EXCLUDED, NAMES, PARTITIONS, VALUES
from tests.harness.postgres_jobs import PostgresJobs

ALTERATIONS = (*COLUMNS, *IDENTITIES, *NAMES, *EXCLUDED, *PARTITIONS, *VALUES)


@dataclass
class ReadOnce(PostgresJobs):
    """Reads the lake after `settle`, once for all tables."""

    tables: dict[str, SourceTable] = field(default_factory=dict)
    by_table: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    by_snapshot: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    position: int | None = None

    def settle(self) -> None:
        super().settle()
        self.tables = self.lake.tables.read(self.source.name)
        self.position = super().persisted_position()
        self.by_table, self.by_snapshot = defaultdict(list), defaultdict(list)
        for event in super().events():
            self.by_table[event["table_id"]].append(event)
        for row in self.rows_of_snapshots(f"r.source = '{self.source.name}'"):
            self.by_snapshot[row["snapshot_id"]].append(row)

    def events(self, table_id: str | None = None) -> list[dict[str, Any]]:
        return self.by_table[str(table_id)]

    def persisted_position(self) -> int | None:
        return self.position

    def snapshot_rows(self, table: SourceTable) -> list[dict[str, Any]]:
        return self.by_snapshot[str(table.snapshot_id)]

    def active(self, table_name: str) -> SourceTable | None:
        tables = [t for t in self.tables.values() if t.table_name == table_name and t.state != ENDED]
        assert len(tables) < 2, "two generations are active"
        return tables[0] if tables else None

    def table(self, table_name: str) -> SourceTable:
        table = self.active(table_name)
        assert table is not None, "the table is not in the lake"
        return table

    def assert_outcome(
        self, name: str, outcome: Outcome, before: SourceTable | None, first: SourceTable | None
    ) -> None:
        """before: the table before the step. first: the table before the first step."""
        if outcome is Outcome.UNCHECKED:
            return
        current = self.active(name)
        if outcome in {Outcome.EXCLUDED, Outcome.ENDED}:
            assert current is None, "the table is in the lake"
        else:
            assert current is not None, "the table is not in the lake"
        if outcome in {Outcome.NEW_GENERATION, Outcome.ENDED}:
            assert before is not None
            assert self.tables[before.table_id].state == ENDED
            assert self.tables[before.table_id].ended_lsn is not None
        if current is None:
            return
        if outcome is Outcome.FIRST_GENERATION:
            assert first is not None
            assert current.table_id == first.table_id
        if outcome in {Outcome.SAME, Outcome.KEPT, Outcome.RESNAPSHOT}:
            assert before is not None
            assert current.table_id == before.table_id, "the table is another generation"
            assert (current.snapshot_id == before.snapshot_id) == (outcome is not Outcome.RESNAPSHOT), (
                f"not {outcome.value}"
            )
        if outcome is not Outcome.KEPT:
            lake, source = self.lake_rows(name), self.source_rows(name)
            assert lake == source, f"only lake {lake - source}, only source {source - lake}"


@pytest.fixture
def jobs(lake: Lake, new_source: Any, settings: JobSettings) -> Iterator[ReadOnce]:
    source: PostgresSource = new_source(tables=("public.*", "!public.hidden_*"))
    postgres_jobs = ReadOnce(lake, source, settings)
    yield postgres_jobs
    postgres_jobs.close()


@dataclass
class Tables:
    """One table for each alteration."""

    jobs: ReadOnce
    database: Database
    alterations: dict[str, Alteration]
    failures: list[str] = field(default_factory=list)
    states: defaultdict[str, list[SourceTable | None]] = field(default_factory=lambda: defaultdict(list))

    def alter(self, step_number: int) -> None:
        """The statements of this step of all tables; step 0 creates the tables."""
        for table, step in self._steps(step_number):
            for statement in step.statements:
                self.database.execute(statement.format(t=table, publication=self.jobs.source.publication))

    def compare(self, step_number: int) -> None:
        for table, step in self._steps(step_number):
            name, states = f"public.{table}", self.states[table]
            try:
                self.jobs.assert_outcome(
                    name, step.outcome, states[-1] if states else None, states[0] if states else None
                )
                if step.check:
                    step.check(self.jobs, name)
            except AssertionError as error:
                self._fail(table, f"step {step_number}, {step.outcome.name}: {error}")
            states.append(self.jobs.active(name))

    def compare_log(self, messages: list[str]) -> None:
        """The log has each table's expected message; for a changed view, once."""
        for table, alteration in self.alterations.items():
            text = alteration.expected_log.format(t=table)
            count = sum(text in message for message in messages)
            if text and (not count or (count > 1 and "column" in text)):
                self._fail(table, f"logged {count} times: {text}")

    def _steps(self, step_number: int) -> list[tuple[str, Step]]:
        rounds = {
            table: (Step(case.created, case.first_outcome), *case.steps) for table, case in self.alterations.items()
        }
        return [(table, steps[step_number]) for table, steps in rounds.items() if step_number < len(steps)]

    def _fail(self, table: str, problem: str) -> None:
        self.failures.append(f"{table}, {self.alterations[table].name}, {problem}")


def test_after_each_alteration_the_lake_equals_the_source(
    jobs: ReadOnce, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    tables = Tables(jobs, database, {f"t{step_number:03}": case for step_number, case in enumerate(ALTERATIONS)})
    for step_number in range(1 + max(len(alteration.steps) for alteration in ALTERATIONS)):
        tables.alter(step_number)
        jobs.settle()
        tables.compare(step_number)
        if step_number == 2:  # Views whose columns changed earlier, which the log reports once
            tables.failures += [message for message in caplog.messages if ": column added" in message]
    tables.compare_log(caplog.messages)
    assert not tables.failures, "\n".join(tables.failures)
