"""What a person is shown of the status."""

import pytest

from ingest.config import Settings
from ingest.status import SourceStatus, Status, render


def test_names_and_messages_are_shown_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    table = {"table": "public.a[/b]", "state": "done", "rows": 1, "note": "[red]:x:"}
    source = SourceStatus("shop", None, None, problem="no [/such] slot", tables=[table])
    render(Status([source], [{"definition": "d[/]", "source": "shop", "position": None}]), Settings(sources={}))
    shown = capsys.readouterr().out
    assert all(text in shown for text in ("public.a[/b]", "[red]:x:", "no [/such] slot", "d[/]"))
