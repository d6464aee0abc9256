"""`tidemark init`: the files of a new project, and of the dbt package in an existing one."""

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from ingest.cli.main import cli
from ingest.common.errors import UsageError
from ingest.config.dbt_profile import read_profile
from ingest.config.sources_file import MongoSource, PostgresSource, load
from ingest.demo.environment import EXAMPLE
from ingest.new_project.new_project import NewProject
from ingest.project.dbt_package import check_version
from tests.harness.project_copy import ROOT


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DBT_PROFILES_DIR", raising=False)


def init(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["init", *arguments])


def test_project_profile_and_source_have_the_folders_name() -> None:
    done = init("My-Shop")
    assert done.exit_code == 0
    assert "export MY_SHOP_DSN=...; tidemark check" in done.output
    folder = Path("My-Shop")
    assert yaml.safe_load((folder / "dbt_project.yml").read_text())["name"] == "my_shop"
    profile = read_profile(folder)
    assert profile.name == "my_shop"
    assert {output["schema"] for output in profile.content["outputs"].values()} == {"my_shop"}
    (source,) = load(folder / "sources.yml", {"MY_SHOP_DSN": "host=db"}).sources.values()
    assert isinstance(source, PostgresSource)
    assert (source.name, source.dsn.get_secret_value()) == ("my_shop", "host=db")
    assert len((folder / "README.md").read_text().splitlines()) == 10


def test_a_mongodb_source_and_its_variable() -> None:
    assert init("shop", "--source", "mongodb", "--dsn-env", "REVIEWS").exit_code == 0
    (source,) = load(Path("shop/sources.yml"), {"REVIEWS": "mongodb://db"}).sources.values()
    assert isinstance(source, MongoSource)
    assert "export REVIEWS=..." in Path("shop/README.md").read_text()


def test_the_package_is_complete_and_known_to_dbt() -> None:
    init("shop")
    for part in ("dbt_project.yml", "macros", "models", "tests/data_tests"):
        files = [path for path in (ROOT / part).rglob("*") if path.is_file()] or [ROOT / part]
        for file in files:
            copy = Path("shop/dbt_packages/tidemark") / file.relative_to(ROOT)
            assert file.name.startswith(".") or copy.read_bytes() == file.read_bytes()
    assert yaml.safe_load(Path("shop/packages.yml").read_text()) == {"packages": [{"local": "packages/tidemark"}]}


@pytest.mark.parametrize("file", ["README.md", "sources.yml", ".gitignore", "packages/tidemark/x"])
def test_nothing_is_overwritten(file: str) -> None:
    path = Path("shop") / file
    path.parent.mkdir(parents=True)
    path.write_text("mine")
    error = init("shop").exception
    assert isinstance(error, UsageError)
    assert "already has" in str(error)
    assert [each for each in Path("shop").rglob("*") if each.is_file()] == [path]


def test_an_existing_project_gets_the_package_alone() -> None:
    Path("acme").mkdir()
    Path("acme/dbt_project.yml").write_text("name: acme\n")
    error = init("acme").exception
    assert isinstance(error, UsageError)
    assert str(error).endswith("Add the dbt package to it: tidemark init --package-only acme.")
    done = init("--package-only", "acme")
    assert "  - local: packages/tidemark" in done.output
    assert sorted(path.name for path in Path("acme").iterdir()) == ["dbt_packages", "dbt_project.yml", "packages"]
    Path("acme/packages.yml").write_text("packages:\n  - local: packages/tidemark\n")
    assert init("--package-only", "acme").output == "wrote acme/packages/tidemark\n"


def test_a_package_of_another_version_is_refused_until_it_is_replaced() -> None:
    init("shop")
    settings = Path("shop/packages/tidemark/dbt_project.yml")
    settings.write_text(settings.read_text().replace("version: ", "version: 9"))
    with pytest.raises(UsageError, match=r"the dbt package tidemark is version 9\S+, this command is version \d"):
        check_version(Path("shop"))
    init("--package-only", "shop")
    check_version(Path("shop"))


@pytest.mark.parametrize("name", ["tidemark", "1st", "dbt", "core", "n" * 41])
def test_a_name_that_dbt_does_not_allow_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="can't have the name"):
        list(NewProject(Path(name), "postgres").write())


def test_the_examples_shared_files_are_those_of_a_new_project() -> None:
    rendered = dict(NewProject(Path("flights"), "postgres").render())
    assert (EXAMPLE / "macros/generate_schema_name.sql").read_text() == rendered["macros/generate_schema_name.sql"]
    models = yaml.safe_load((EXAMPLE / "dbt_project.yml").read_text())["models"]
    assert models == yaml.safe_load(rendered["dbt_project.yml"])["models"]
