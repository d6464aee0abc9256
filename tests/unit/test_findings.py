"""How check results are printed, as text and as JSON."""

import json

import click

from ingest.common.errors import Failure
from ingest.common.findings import Finding, finding_from_error, format_findings, with_source

SHOP = with_source(
    "shop",
    [
        Finding("ok", "PostgreSQL 17.2", "db:5432/shop"),
        Finding("warning", "it has no primary key", "source shop, table public.audit_log", "Add one"),
        finding_from_error(Failure("the slot is in use", "source shop, slot tidemark", "End it")),
        Finding("ok", "2 of 3 tables can be read", "source shop"),
        Finding("ok", "is read", "source shop, table " + 50 * "x"),
    ],
)


def test_subjects_come_first_aligned_and_grouped() -> None:
    findings = [*SHOP, Finding("ok", "1 of 1 are valid", "definitions", group="definitions")]
    assert [click.unstyle(line) for line in format_findings(findings)] == [
        "source shop",
        "  ok       db:5432/shop                                  PostgreSQL 17.2",
        "  warning  table public.audit_log                        it has no primary key",
        "                                                         Add one",
        "  error    slot tidemark                                 the slot is in use",
        "                                                         End it",
        "  ok       source shop                                   2 of 3 tables can be read",
        "  ok       table xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx  is read",
        "definitions",
        "  ok       definitions  1 of 1 are valid",
        "1 error, 1 warning",
    ]


def test_no_name_forges_a_line_and_no_password_is_shown() -> None:
    findings = with_source(
        "shop", [Finding("error", "of postgres://me:secret@db", "source shop, table public.a\n  ok b")]
    )
    shown = [click.unstyle(line) for line in format_findings(findings)]
    assert shown[1] == "  error    table public.a\\n  ok b  of postgres://me:***@db"
    assert json.loads(findings[0].to_json()) == {
        "level": "error",
        "source": "shop",
        "subject": "table public.a\n  ok b",
        "message": "of postgres://me:***@db",
        "fix": "",
    }
    assert json.loads(Finding("ok", "x", "dbt").to_json())["source"] is None
