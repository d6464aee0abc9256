"""The generated pages of docs/reference are up to date, and leave nothing out."""

import pytest
import yaml

from ingest.cli.main import cli
from ingest.config.job_settings import JobSettings
from ingest.lake import raw_schema
from scripts import generate_docs
from tests.harness.project_copy import ROOT


@pytest.mark.parametrize("name", generate_docs.PAGES)
def test_a_generated_page_is_up_to_date(name: str) -> None:
    written = (ROOT / "docs" / "reference" / name).read_text()
    assert written == generate_docs.PAGES[name](), "run `make generate-docs`"


def test_the_variables_described_are_those_that_the_code_reads() -> None:
    assert set(generate_docs.VARIABLES) == set(generate_docs.find_variables())


def test_every_column_of_raw_is_described() -> None:
    tables = yaml.safe_load((ROOT / "models/raw/sources.yml").read_text())["sources"][0]["tables"]
    described = {f"raw.{table['name']}": [column["name"] for column in table["columns"]] for table in tables}
    assert described == {name: list(table.columns) for name, table in raw_schema.TABLES.items()}


def test_every_setting_and_command_has_a_heading() -> None:
    configuration, commands = generate_docs.configuration(), generate_docs.command_line()
    assert [name for name in JobSettings.model_fields if f"### `{name}`" not in configuration] == []
    assert [name for name in cli.commands if f"## tidemark {name}\n" not in commands] == []


def test_errors_of_python_and_of_macros_are_found_with_their_advice() -> None:
    page = generate_docs.errors()
    assert "- `the replication slot does not exist, so changes are lost`\n    `tidemark resnapshot --all" in page
    assert "- `meta.bucket_by is missing or not a list of names`\n    List the columns" in page
