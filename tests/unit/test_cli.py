"""The output of the command line for errors."""

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from queue import Queue

import pytest

from ingest.cli import log_files, main
from ingest.cli.stop_signals import call_on_stop_signal
from ingest.commands.op_log import make_bucket_name
from ingest.lake.spark_session import read_settings

PROFILES = Path(__file__).parents[2] / "profiles"


@pytest.fixture(autouse=True)
def _handlers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Restores the handlers of the loggers."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PWD", str(tmp_path))
    loggers = [logging.getLogger(name) for name in ("", "ingest", "tidemark")]
    before = [(logger.handlers[:], logger.propagate) for logger in loggers]
    yield
    for logger, (handlers, propagate) in zip(loggers, before, strict=True):
        for handler in set(logger.handlers) - set(handlers):
            handler.close()
        logger.handlers, logger.propagate = handlers, propagate


def test_an_unexpected_error_is_a_line_with_its_traceback_in_the_log(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(**_: object) -> None:
        raise RuntimeError("can't open jdbc:postgresql://host/db?password=hunter2")

    monkeypatch.setattr(main.cli, "main", fails)
    with pytest.raises(SystemExit, match="1"):
        main.main()
    shown, log = capsys.readouterr().err, log_files.LOG.read_text()
    assert "password=***" in shown
    assert "Traceback" not in shown
    assert "Traceback" in log
    assert "hunter2" not in shown + log


def test_an_error_whose_text_raises_an_error_is_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class OfAnEndedJvm(Exception):
        def __str__(self) -> str:
            raise ConnectionRefusedError

    def fails(**_: object) -> None:
        raise OfAnEndedJvm

    monkeypatch.setattr(main.cli, "main", fails)
    with pytest.raises(SystemExit, match="1"):
        main.main()
    assert "OfAnEndedJvm: Spark has ended" in capsys.readouterr().err


def test_an_unwritable_log_is_a_one_line_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "logs").write_text("a file")
    monkeypatch.setattr("sys.argv", ["tidemark", "--help"])
    with pytest.raises(SystemExit, match="2"):
        main.main()
    assert capsys.readouterr().err.startswith("tidemark: the log can't be written")


@pytest.mark.parametrize("lake_folder", [None, "", ".", "/", "/no/such/folder", "/" + 300 * "a"])
def test_the_lake_is_in_the_working_directory(
    lake_folder: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TIDEMARK_LAKE", raising=False)
    monkeypatch.delenv("PWD") if lake_folder is None else monkeypatch.setenv("PWD", lake_folder)
    monkeypatch.setattr("sys.argv", ["tidemark", "--version"])
    main.main()
    assert read_settings("local", PROFILES)["spark.sql.catalog.lake.warehouse"] == f"{tmp_path}/.tidemark/lake"


def test_a_symbolic_link_to_the_working_directory_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    monkeypatch.chdir(tmp_path / "link")
    monkeypatch.setenv("PWD", str(tmp_path / "link"))
    monkeypatch.setattr("sys.argv", ["tidemark", "--version"])
    main.main()
    assert os.environ["PWD"] == str(tmp_path / "link")


def test_views_are_only_written_in_a_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "sources.yml").write_text("sources: {shop: {postgres: {dsn: dbname=shop, tables: [public.*]}}}")
    monkeypatch.setattr("sys.argv", ["tidemark", "codegen"])
    with pytest.raises(SystemExit, match="2"):
        main.main()
    assert "no dbt project here: dbt_project.yml" in capsys.readouterr().err
    assert not (tmp_path / "models").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["buckets", "--for", "user_id"], "Write --for NAME=VALUE"),
        (["buckets", "--for", "=5"], "Write --for NAME=VALUE"),
        (["buckets", "--for", "user_id=1", "--for", "user_id=2"], "Give each name only once"),
        (["ops", "orders", "[]", "--after", "-3"], "-3 is not in the range x>=0"),
    ],
)
def test_invalid_arguments_are_refused(
    arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["tidemark", *arguments])
    with pytest.raises(SystemExit, match="2"):
        main.main()
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("[]", "[]"),
        ("EU", '["EU"]'),
        ("7", '["7"]'),
        ("[1.50, 12345678901234567890.10, 1e2]", '["1.50","12345678901234567890.10","1e2"]'),
        ('["EU", null, true]', '["EU",null,"true"]'),
        ('["a\\u001fb\\n\\\\u001f"]', '["a\\u001Fb\\n\\\\u001f"]'),
        ("orders[7]", "[7]"),
    ],
)
def test_a_bucket_name_is_written_as_by_spark(name: str, values: str) -> None:
    assert make_bucket_name("orders", name) == f"orders{values}"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_answered_with_the_work_to_be_finished(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    messages: Queue[str] = Queue()
    stopped: list[bool] = []
    monkeypatch.setattr(logging.getLogger("tidemark"), "info", lambda text, *values: messages.put(text % values))
    before = [signal.getsignal(signal_number) for signal_number in (signal.SIGINT, signal.SIGTERM)]
    try:
        call_on_stop_signal(lambda: stopped.append(True), "after the commits in progress")
        os.kill(os.getpid(), number)
        assert messages.get(timeout=60) == "stopping after the commits in progress"
    finally:
        for signal_number, handler in zip((signal.SIGINT, signal.SIGTERM), before, strict=True):
            signal.signal(signal_number, handler)
    assert stopped == [True]


def test_a_name_with_control_characters_forges_no_log_record(capsys: pytest.CaptureFixture[str]) -> None:
    log_files.log_to_file()
    name = "t\n2026-01-01 00:00:00 INFO forged\x1b[2J"
    logging.getLogger("tidemark").error("can't read %s", name, exc_info=ValueError(name))
    with pytest.raises(SystemExit):
        main._exit_with_error(f"no table {name}", 1)
    for text in (capsys.readouterr().err, log_files.LOG.read_text()):
        assert "\\n2026-01-01 00:00:00 INFO forged\\x1b[2J" in text
        assert "\x1b" not in text
        assert not any(line.startswith("2026-01-01 00:00:00 INFO forged") for line in text.splitlines())


def test_a_full_disk_under_log_and_terminal_fails_no_log_call(monkeypatch: pytest.MonkeyPatch) -> None:
    logger = logging.getLogger("a logger of its own")
    logger.addHandler(handler := log_files._LogFile("/dev/full"))
    monkeypatch.setattr(logging, "raiseExceptions", False)
    with Path("/dev/full").open("w", buffering=1) as screen:
        monkeypatch.setattr("sys.stderr", screen)
        try:
            logger.warning("something")
            assert handler._fails
        finally:
            logger.removeHandler(handler)
            monkeypatch.undo()
            with suppress(OSError):
                screen.close()


@pytest.mark.parametrize("module", ["commands.op_log", "commands.status", "pipeline.ingest_jobs"])
def test_commands_without_models_do_not_load_dbt(module: str) -> None:
    """Loading dbt takes a second."""
    code = f"import sys, ingest.{module}; sys.exit('dbt.contracts' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
