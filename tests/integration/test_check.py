"""`tidemark check` on the project's side: one clear line for each mistake in a definition."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import SecretStr

from ingest.commands.check import check_project
from ingest.config.sources_file import PostgresSource, Settings
from tests.harness.project_copy import make_project

SHOP = PostgresSource(name="shop", dsn=SecretStr("host=db dbname=shop"), tables=("public.*",))
SETTINGS = Settings(sources={"shop": SHOP})

VIEW = """\
{{ config(meta={'source': '%s', 'table': '%s'}) }}
select row_key as _row_key, columns['id'] as id from {{ ref('row_state') }}
"""
DEFINITION = """\
{{ config(meta={'bucket_by': [], 'object_id': 'id', 'unique_key': ['id']%s}) }}
select id from %s
"""


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder `models` of a project that has no definitions and views yet, and no lake."""
    monkeypatch.setenv("TIDEMARK_LAKE", str(tmp_path / "lake"))
    make_project(tmp_path)
    for folder in ("staging", "buckets"):
        (tmp_path / "models" / folder).mkdir(parents=True)
    return tmp_path / "models"


def lines(folder: Path, target: str | None = None) -> list[str]:
    return [f"{f.level} {f}" for f in check_project(SETTINGS, target, folder).findings]


def test_every_invalid_definition_is_reported_with_its_file(models: Path) -> None:
    (models / "staging/stg_shop__t.sql").write_text(VIEW % ("shop", "public.t"))
    (models / "staging/stg_shop__u.sql").write_text(VIEW % ("shop", "private.u"))
    buckets: dict[str, tuple[str, str]] = {
        "good": ("", "{{ ref('stg_shop__t') }}"),
        "log__ops": ("", "{{ ref('stg_shop__t') }}"),
        "misspelt": (", 'object': 'x'", "{{ ref('stg_shop__t') }}"),
        "rootless": ("", "range(3)"),
        "unselected": ("", "{{ ref('stg_shop__u') }}"),
    }
    for name, values in buckets.items():
        (models / f"buckets/{name}.sql").write_text(DEFINITION % values)
    (models / "buckets/renamed.sql").write_text(
        (DEFINITION % ("", "{{ ref('stg_shop__t') }}")).replace("config(", "config(alias='other', ")
    )
    (models / "buckets/good.sql").write_text(
        (DEFINITION % ("", "{{ ref('stg_shop__t') }}")).replace("config(", "config(partition_by=['id'], ")
    )
    (models / "buckets/Capital.sql").write_text(DEFINITION % ("", "{{ ref('stg_shop__t') }}"))
    (models / "buckets/no_list.sql").write_text((DEFINITION % ("", "{{ ref('stg_shop__t') }}")).replace("[]", "[none]"))
    (models / "buckets/two.sql").write_text(
        "{{ config(meta={'bucket_by': [], 'object_id': 'id', 'evaluation': 'incremental'}) }}\n"
        "select _row_key, id from {{ rows('stg_shop__t') }} -- {{ ref('stg_shop__u') }}"
    )
    assert lines(models.parent) == [
        (
            "ok the catalog's file does not exist yet; the first job creates it, and checks namespaces and views: "
            "profiles.yml."
        ),
        (
            "error the name 'Capital' may only have lower-case letters, digits and _: models/buckets/Capital.sql. "
            "Give the model another name."
        ),
        "warning `partition_by` has no effect on a definition: models/buckets/good.sql. Remove it.",
        "error the name ends in __ops, as an op log's does: models/buckets/log__ops.sql. Give the model another name.",
        "error meta has an unknown key 'object': models/buckets/misspelt.sql. Did you mean object_id?",
        (
            "error meta.bucket_by is missing or not a list of names: models/buckets/no_list.sql. "
            "List the columns that identify a bucket; [] makes one global bucket."
        ),
        (
            "error the alias is 'other', but a definition's tables have its name: models/buckets/renamed.sql. "
            "Remove the alias."
        ),
        (
            "error reads no staging view: models/buckets/rootless.sql. "
            "Select from one: its meta.source and meta.table name its table."
        ),
        (
            "error evaluation: 'incremental' depends on 2 tables, public.t, private.u: models/buckets/two.sql. "
            "Set evaluation: 'full', or ref only the view of rows(...)."
        ),
        (
            "warning it reads shop.private.u, which sources.yml does not select, and will never "
            "be updated: models/buckets/unselected.sql. "
            "Correct sources.yml, or `meta` of the staging view."
        ),
        "ok 2 of 9 are valid: definitions.",
    ]
    assert not (models.parent / "lake").exists()


@pytest.mark.parametrize(
    ("break_it", "line"),
    [
        (
            lambda models: (models / "buckets/b.sql").write_text("select {{ ref('gone') }}"),
            "error dbt can't parse it (Model 'model.shop.b' (models/buckets/b.sql)",
        ),
        (
            lambda models: (models.parent / "profiles.yml").unlink(),
            "error no profile: ",
        ),
    ],
)
def test_an_unreadable_project_is_a_one_line_error(models: Path, break_it: Callable[[Path], object], line: str) -> None:
    break_it(models)
    (found,) = lines(models.parent)
    assert found.startswith(line)


def test_rows_without_its_package_is_a_clear_error(models: Path) -> None:
    (models / "buckets/b.sql").write_text(DEFINITION % ("", "{{ rows('stg_shop__t') }}"))
    (models.parent / "macros/rows.sql").unlink()
    assert lines(models.parent)[1] == (
        "error dbt does not know rows(...) without its package: models/buckets/b.sql. Write tidemark.rows(...)."
    )


def test_a_missing_target_is_a_one_line_error(models: Path) -> None:
    (found,) = lines(models.parent, "nowhere")
    assert found.startswith("error no target 'nowhere': ")
    assert found.endswith("Known are: local, cluster, thrift.")
