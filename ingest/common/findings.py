"""Results of checks: `error`, `warning` or `ok`; printed as lines for people, as JSON for programs."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal

import click

from ingest.common.errors import TidemarkError, printable, redact

Level = Literal["error", "warning", "ok"]
_COLOURS: dict[Level, str] = {"error": "red", "warning": "yellow", "ok": "green"}
# Subjects are aligned up to this length.
_MAX_SUBJECT_WIDTH = 44


@dataclass(frozen=True)
class Finding:
    """The result of one check. what, where, fix: as of a TidemarkError.

    error: something will fail or be missing until it is fixed. warning: it works, perhaps not as intended. ok: nothing
    to do. source: the source, if the check concerns one; otherwise group: the heading in the output.
    """

    level: Level
    what: str
    where: str = ""
    fix: str = ""
    source: str = ""
    group: str = "profile"

    @property
    def subject(self) -> str:
        """`where` without the name of the source."""
        return self.where.removeprefix(f"source {self.source}, ")

    def to_json(self) -> str:
        """One JSON object."""
        values = {
            "level": self.level,
            "source": self.source or None,
            "subject": self.subject,
            "message": redact(self.what),
            "fix": redact(self.fix),
        }
        return json.dumps(values, ensure_ascii=False)

    def __str__(self) -> str:
        return str(TidemarkError(self.what, self.where, self.fix))


def format_findings(findings: Sequence[Finding]) -> Iterator[str]:
    """Lines for people: by source or `group`, `fix` below the message; last the number of errors and warnings."""
    for heading, group in groupby(
        findings, lambda finding: f"source {finding.source}" if finding.source else finding.group
    ):
        yield click.style(printable(heading), bold=True)
        group_findings = list(group)
        width = min(_MAX_SUBJECT_WIDTH, max(len(printable(finding.subject)) for finding in group_findings))
        for finding in group_findings:
            level = click.style(f"{finding.level:<7}", fg=_COLOURS[finding.level])
            yield f"  {level}  {printable(finding.subject):<{width}}  {printable(redact(finding.what))}"
            if finding.fix:
                yield f"  {'':<7}  {'':<{width}}  {printable(redact(finding.fix))}"
    errors, warnings = (sum(finding.level == level for finding in findings) for level in ("error", "warning"))
    yield f"{errors} error{'s'[: errors != 1]}, {warnings} warning{'s'[: warnings != 1]}"


def with_source(name: str, findings: Sequence[Finding]) -> list[Finding]:
    """The findings with `source` set to `name`."""
    return [replace(finding, source=name) for finding in findings]


def exclusion_level(*, required: bool) -> Literal["error", "warning"]:
    """The level of a finding that excludes a table from replication: a warning if nothing needs the table."""
    return "error" if required else "warning"


def finding_from_error(error: TidemarkError) -> Finding:
    """An error as a finding."""
    return Finding("error", error.what, error.where, error.fix)
