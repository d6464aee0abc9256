"""The text output of the status."""

from datetime import datetime, timezone

import pytest

from ingest.commands.status import SourceStatus, Status, _join_problems, render_status
from ingest.config.sources_file import Settings


def test_names_and_messages_are_shown_unchanged(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = {"table": "public.a[/b]", "state": "done", "rows": 1, "note": "[red]:x:"}
    source = SourceStatus("shop", None, None, problem="no [/such] slot", tables=[table])
    evaluated_at = datetime(2026, 11, 27, tzinfo=timezone.utc)
    evaluation = {"kind": "full", "why": "new", "put": 1200, "removed": 0, "at": evaluated_at}
    mark = {"definition": "d[/]", "source": "shop", "position": None, "state": "published", "evaluation": evaluation}
    failed = {"state": "failed", "reason": "no\ncolumn [x]", "since": evaluated_at}
    nowhere = {"definition": "e", "source": None, "position": None, "evaluation": None, **failed}
    release = {"release_id": 7, "published_at": evaluated_at, "age_seconds": 61.2}
    monkeypatch.setenv("COLUMNS", "200")
    render_status(Status([source], [mark, nowhere], release, [{"model": "events", **failed}]), Settings(sources={}))
    shown = capsys.readouterr().out
    assert all(text in shown for text in ("public.a[/b]", "[red]:x:", "no [/such] slot", "d[/]"))
    assert "last release: 61 s ago, 2026-11-27 00:00:00 UTC" in shown
    assert "core.events has failed since 2026-11-27 00:00:00 UTC: no\\ncolumn [x]" in shown
    assert "2026-11-27 00:00:00 full (new), PUT 1,200, REMOVE 0" in shown
    assert "failed since 2026-11-27 00:00:00: no\\ncolumn [x]" in shown


@pytest.mark.parametrize(
    ("failure", "problem", "shown"),
    [
        ("", "", ""),
        ("", "no server", "no server"),
        ("Its jobs have failed since noon: no server", "", "Its jobs have failed since noon: no server"),
        ("Its jobs have failed since noon: no server", "no server", "Its jobs have failed since noon: no server"),
        ("Its jobs have failed since noon: no slot", "no server", "Its jobs have failed since noon: no slot no server"),
    ],
)
def test_a_problem_also_reported_by_the_jobs_is_shown_once(failure: str, problem: str, shown: str) -> None:
    assert _join_problems(failure, problem) == shown
