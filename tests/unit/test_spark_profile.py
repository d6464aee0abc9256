"""An error in profiles.yml is one line, without the content of the file."""

from pathlib import Path

import pytest

from ingest.common.errors import UsageError
from ingest.lake.spark_session import LOG, exit_failure, has_lake, read_settings


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("tidemark: [", "no valid YAML"),
        ('tidemark:\n  key: "s3cret" x\n', "no valid YAML"),
        ("", "it has 0 profiles"),
        ("- tidemark", "it has 0 profiles"),
        ("a: {}\nb: {}", "it has 2 profiles"),
        ("tidemark: local", "no mapping 'tidemark'"),
        ("tidemark: {target: local, outputs: }", "no mapping 'outputs'"),
        ("tidemark: {target: dev, outputs: {local: {}}}", "no target 'dev'.*local"),
        ("tidemark: {target: local, outputs: {local: x}}", "no mapping 'local'"),
        ("tidemark: {target: local, outputs: {local: {method: thrift}}}", "no Spark session"),
        (
            "tidemark: {target: local, outputs: {local: {method: session, server_side_parameters: }}}",
            "no mapping 'server_side_parameters'",
        ),
    ],
)
def test_an_invalid_profile_is_a_one_line_error(tmp_path: Path, text: str, line: str) -> None:
    (tmp_path / "profiles.yml").write_text(text)
    with pytest.raises(UsageError, match=line) as failure:
        read_settings(folder=tmp_path)
    assert "s3cret" not in str(failure.value)
    assert "\n" not in str(failure.value)


def test_the_profile_is_that_of_the_project(tmp_path: Path) -> None:
    output = "{method: session, server_side_parameters: {spark.master: %s}}"
    outputs = [f"{name}: {{target: dev, outputs: {{dev: {output % name}}}}}" for name in ("acme", "other")]
    (tmp_path / "profiles.yml").write_text("\n".join(outputs))
    (tmp_path / "dbt_project.yml").write_text("name: shop\nprofile: acme\n")
    assert read_settings(folder=tmp_path) == {"spark.master": "acme"}
    (tmp_path / "dbt_project.yml").write_text("name: shop\nprofile: missing\n")
    with pytest.raises(UsageError, match="no mapping 'missing'"):
        read_settings(folder=tmp_path)


def test_a_local_lake_exists_if_it_has_its_catalog_file(tmp_path: Path) -> None:
    settings = {"spark.sql.catalog.lake.uri": f"jdbc:sqlite:{tmp_path}/catalog.db?journal_mode=WAL"}
    assert not has_lake(settings)
    (tmp_path / "catalog.db").touch()
    assert has_lake(settings)
    assert has_lake({"spark.sql.catalog.lake.uri": "http://catalog", "spark.sql.catalog.lake.type": "rest"})
    assert has_lake({"spark.remote": "sc://spark:15002"})


@pytest.mark.parametrize(
    ("status", "is_out_of_memory", "cause"),
    [
        (-9, False, "killed by SIGKILL): logs/spark.log. If memory was short, the kernel killed it"),
        (-15, False, "killed by SIGTERM): logs/spark.log. Start again"),
        (3, True, "exit code 3, out of memory): logs/spark.log. Raise TIDEMARK_DRIVER_MEMORY"),
        (-9, True, "killed by SIGKILL, out of memory): logs/spark.log. Raise TIDEMARK_DRIVER_MEMORY"),
        (0, False, "exit code 0): logs/spark.log. Start again"),
    ],
)
def test_the_end_of_the_java_process_is_reported_with_its_cause(
    status: int, is_out_of_memory: bool, cause: str
) -> None:
    failure = exit_failure(status, is_out_of_memory=is_out_of_memory, log=LOG)
    assert str(failure).startswith(f"Spark's Java process has ended ({cause}")
