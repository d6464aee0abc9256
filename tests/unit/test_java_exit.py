"""An error that the end of the Java process causes is reported as such, not as a rejected view or a weak catalog."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError
from pydantic import SecretStr
from pyspark.errors import AnalysisException

from ingest.codegen.view_trial import ViewTrial
from ingest.commands import check
from ingest.common.errors import Failure
from ingest.common.findings import Finding
from ingest.config.job_settings import JobSettings
from ingest.config.sources_file import MongoSource, Settings
from ingest.lake import spark_session


class FailingSession:
    """A session whose every call raises an error."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def createDataFrame(self, *_: Any) -> Any:  # noqa: N802
        return self

    def createOrReplaceTempView(self, _: str) -> None:  # noqa: N802
        pass

    def sql(self, _: str) -> Any:
        raise self._error


@pytest.fixture
def _exited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process = subprocess.Popen(["sh", "-c", "kill -9 $$"])
    process.wait(60)
    log = tmp_path / "spark.log"
    log.touch()
    monkeypatch.setattr(spark_session, "_started", [spark_session._Java(process, log, 0)])


@pytest.mark.usefixtures("_exited")
@pytest.mark.parametrize(
    "error", [Py4JError("PythonUtils does not exist in the JVM"), Py4JNetworkError("EOF"), ConnectionRefusedError()]
)
def test_the_end_of_the_java_process_is_the_cause(error: Exception) -> None:
    assert spark_session.has_java_exited()
    with pytest.raises(Failure, match="Spark's Java process has ended .killed by SIGKILL."):
        spark_session.raise_if_java_exited(error)


@pytest.mark.usefixtures("_exited")
def test_a_view_is_not_blamed_for_the_end_of_the_java_process() -> None:
    session: Any = FailingSession(Py4JNetworkError("EOF"))
    with pytest.raises(Failure, match="Java process has ended"):
        ViewTrial(lambda: session).try_view("select 1 as id")


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Of a source that nothing listens for; the check of the project finds one error."""
    error = Finding("error", "Connection refused", "models/buckets/orders.sql")
    monkeypatch.setattr(check, "check_project", lambda *_: check.ProjectCheck([error]))
    source = MongoSource(name="m", uri=SecretStr("mongodb://127.0.0.1:1"), collections=("m.*",))
    return Settings(sources={"m": source}, settings=JobSettings(connect_timeout_seconds=0.1))


@pytest.mark.usefixtures("_exited")
def test_a_definition_is_not_blamed_for_the_end_of_the_java_process(settings: Settings) -> None:
    with pytest.raises(Failure, match="Java process has ended"):
        check.check_all(settings)


def test_an_invalid_definition_is_reported_while_the_java_process_runs(settings: Settings) -> None:
    assert "models/buckets/orders.sql" in [finding.where for finding in check.check_all(settings)]


def test_a_rejected_view_is_reported_while_the_java_process_runs() -> None:
    session: Any = FailingSession(AnalysisException("no such column"))
    assert "no such column" in ViewTrial(lambda: session).try_view("select 1 as id")
