"""`tidemark apply` finds the running `tidemark run` processes of a project."""

import os
import signal
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner

from ingest.cli.run_command import run
from ingest.cli.stop_signals import call_on_hangup
from ingest.common.errors import Failure
from ingest.project import running_processes
from ingest.project.running_processes import register_process, signal_processes


def test_only_a_running_process_is_signalled(tmp_path: Path) -> None:
    called = threading.Event()
    before = signal.getsignal(signal.SIGHUP)
    try:
        call_on_hangup(called.set)
        killed = tmp_path / ".tidemark/run/1"
        killed.mkdir(parents=True)
        (killed / "lock").touch()
        with register_process(tmp_path) as folder:
            (folder / "dbt_packages").symlink_to(tmp_path)
            assert signal_processes(tmp_path) == ([os.getpid()], [])
            assert called.wait(10)
        assert signal_processes(tmp_path) == ([], [])
    finally:
        signal.signal(signal.SIGHUP, before)
    assert list((tmp_path / ".tidemark/run").iterdir()) == []
    assert tmp_path.exists()


def test_a_process_with_the_same_id_in_another_container_is_not_signalled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both containers share the project's folder."""
    signalled: list[int] = []
    monkeypatch.setattr(os, "kill", lambda process_id, _: signalled.append(process_id))
    monkeypatch.setattr(running_processes, "_read_machine", lambda: "first pid:[1]")
    with register_process(tmp_path):
        monkeypatch.setattr(running_processes, "_read_machine", lambda: "second pid:[2]")
        with register_process(tmp_path):
            assert signal_processes(tmp_path) == ([os.getpid()], ["first"])
    assert signalled == [os.getpid()]


def test_a_process_that_is_still_starting_is_not_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sources.yml").write_text("sources: {shop: {postgres: {dsn: dbname=shop, tables: [public.*]}}}\n")
    handlers: list[object] = []

    def register(_: Path) -> None:
        handlers.append(signal.getsignal(signal.SIGHUP))
        raise Failure("registered")

    before = signal.getsignal(signal.SIGHUP)
    monkeypatch.setattr(running_processes, "register_process", register)
    try:
        assert "registered" in str(CliRunner().invoke(run, []).exception)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert callable(handlers[0])
