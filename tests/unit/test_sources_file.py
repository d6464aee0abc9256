"""`sources.yml`: valid settings, and the one-line errors for invalid ones."""

import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from ingest.common.errors import UsageError
from ingest.config.job_settings import JobSettings
from ingest.config.sources_file import MongoSource, PostgresSource, Settings, load

Load = Callable[[str], Settings]
SECRET = "se:cr/et"
ENVIRONMENT = {
    "SHOP_DSN": f"host=h password={SECRET}",
    "EMPTY": "",
    "TABLE": "public.a",
    "YAML": "a.b # c: {x: 1}\nd: ]",
}


@pytest.fixture
def load_text(tmp_path: Path) -> Load:
    def load_it(text: str) -> Settings:
        path = tmp_path / "sources.yml"
        path.write_text(text)
        return load(path, ENVIRONMENT)

    return load_it


def shop(**options: Any) -> str:
    postgres = {"dsn": "host=h", "tables": ["public.*"], **options}
    return yaml.safe_dump({"sources": {"shop": {"postgres": postgres}}})


def postgres(settings: Settings) -> PostgresSource:
    (source,) = settings.sources.values()
    assert isinstance(source, PostgresSource)
    return source


def test_defaults_follow_the_name_of_the_source(load_text: Load) -> None:
    source = postgres(load_text(shop()))
    assert (source.name, source.slot, source.publication) == (
        "shop",
        "tidemark_shop",
        "tidemark_shop",
    )
    assert (source.writers, source.soft_deletes, source.snapshot_hold) == (
        1,
        True,
        "definition",
    )


def test_all_settings_have_defaults(load_text: Load) -> None:
    assert load_text(shop()).settings == JobSettings()


def test_sizes_take_units(load_text: Load) -> None:
    settings = load_text(shop() + "settings: {commit_max_bytes: 2MiB, commit_interval_seconds: 0.5}").settings
    assert (settings.commit_max_bytes, settings.commit_interval_seconds) == (2 * 1024 * 1024, 0.5)


def test_every_setting_has_a_unit_and_a_reason() -> None:
    for name, field in JobSettings.model_fields.items():
        unit = {"bytes": "Bytes", "seconds": "Seconds"}.get(name.rpartition("_")[2], "")
        assert field.description, name
        assert field.description.startswith(unit), name


def test_a_mongodb_source_is_loaded(load_text: Load) -> None:
    settings = load_text("sources: {r: {mongodb: {uri: 'mongodb://h/', collections: ['r.*']}}}")
    (source,) = settings.sources.values()
    assert isinstance(source, MongoSource)
    assert source.selects("r.notes")
    assert not source.selects("s.notes")


def test_the_slots_of_several_writers_are_numbered(load_text: Load) -> None:
    source = postgres(load_text(shop(slot="s", publication="p", writers=3)))
    assert [source.slot_of(n) for n in (1, 2, 3)] == ["s", "s_2", "s_3"]
    assert [source.publication_of(n) for n in (1, 2, 3)] == ["p", "p_2", "p_3"]


@pytest.mark.parametrize(
    ("pattern", "table", "selected"),
    [
        ("public.*", "public.orders", True),
        ("public.*", "publicity.orders", False),
        ("public.ord*", "public.Orders", False),
        ("*.orders", "sales.orders", True),
        ("public.order[12]", "public.order2", True),
        ("public.a.b", "public.a.b", True),
    ],
)
def test_patterns_select_tables(load_text: Load, pattern: str, table: str, selected: bool) -> None:
    assert postgres(load_text(shop(tables=[pattern]))).selects(table) is selected


@pytest.mark.parametrize("patterns", [["public.*", "!public.audit*"], ["!public.audit*", "public.*"]])
def test_an_exclusion_wins_in_any_order(load_text: Load, patterns: list[str]) -> None:
    source = postgres(load_text(shop(tables=[*patterns, "public.audit_log"])))
    assert [source.selects(f"public.{name}") for name in ("orders", "audit_log")] == [True, False]
    assert not source.names("public.audit_log")
    (mongo,) = load_text(
        f"sources: {{r: {{mongodb: {{uri: 'mongodb://h/', collections: {patterns}}}}}}}"
    ).sources.values()
    assert [mongo.selects(f"public.{name}") for name in ("orders", "audit_log")] == [True, False]


@pytest.mark.parametrize("pattern", ["!public.audit_log", "!audit_log", "!"])
def test_patterns_that_only_exclude_are_refused(load_text: Load, pattern: str) -> None:
    with pytest.raises(UsageError, match="only exclude" if "." in pattern else "two parts"):
        load_text(shop(tables=[pattern]))


def test_variables_are_expanded_in_texts(load_text: Load) -> None:
    source = postgres(load_text(shop(dsn="${SHOP_DSN}", tables=["${TABLE}_$${x}"])))
    assert source.dsn.get_secret_value() == ENVIRONMENT["SHOP_DSN"]
    assert source.tables == ("public.a_${x}",)


def test_a_variable_cannot_change_the_structure(load_text: Load) -> None:
    assert postgres(load_text(shop(tables=["${YAML}"]))).tables == (ENVIRONMENT["YAML"],)


def test_secrets_are_not_shown(load_text: Load) -> None:
    settings = load_text(shop(dsn="${SHOP_DSN}"))
    shown = f"{settings} {settings!r} {settings.model_dump()} {settings.model_dump_json()}"
    assert SECRET not in shown


def test_settings_cross_processes(load_text: Load) -> None:
    settings = load_text(shop(dsn="${SHOP_DSN}"))
    assert pickle.loads(pickle.dumps(settings)) == settings


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"tabels": 1}, "unknown key 'tabels'.*Did you mean tables?"),
        ({"name": "x"}, "unknown key 'name'.*Known are: dsn, tables"),
        ({"tables": []}, "the list is empty.*shop.postgres.tables"),
        ({"tables": "public.*"}, "should be a valid list.*shop.postgres.tables"),
        ({"tables": ["orders"]}, r"two parts.*tables\[0\]"),
        ({"tables": ["public."]}, r"two parts.*tables\[0\]"),
        ({"slot": "Tidemark"}, "a slot's name must be 1 to 63 of a-z, 0-9 and _.*postgres.slot"),
        ({"slot": "s" * 63, "writers": 2}, "a slot's name must be 1 to 63"),
        ({"publication": ""}, "publication's name.*postgres.publication"),
        ({"writers": 0}, "greater than or equal to 1.*postgres.writers"),
        ({"snapshot_hold": "table"}, "'definition' or 'source'"),
        ({"soft_deletes": "perhaps"}, "valid boolean.*soft_deletes"),
        ({"dsn": ""}, "not a Postgres connection string"),
        ({"dsn": SECRET}, "not a Postgres connection string"),
        ({"dsn": f"postgresql://me:{SECRET}@host/db"}, "percent-encode special characters"),
        ({"dsn": f"postgresql://me:%zz{SECRET}@host/db"}, "not a Postgres connection string"),
        ({"dsn": "${EMPTY}"}, "not a Postgres connection string"),
        ({"dsn": "${UNSET_DSN}"}, "environment variable UNSET_DSN is not set.*shop.postgres.dsn"),
        ({"dsn": "${"}, "without a variable's name"),
    ],
)
def test_an_error_in_a_source_is_one_line(load_text: Load, options: dict[str, Any], line: str) -> None:
    with pytest.raises(UsageError) as raised:
        load_text(shop(**options))
    assert re.search(line, str(raised.value))
    assert "\n" not in str(raised.value)
    assert SECRET not in str(raised.value)
    assert raised.value.__cause__ is None


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", r"expected a mapping: \S*sources.yml:1\."),
        ("sources: {}", "no sources"),
        ("source: {}", "unknown key 'source'.*Did you mean sources?"),
        ("sources: [a]", "expected a mapping"),
        ("sources: {Shop: {postgres: {dsn: host=h, tables: [a.b]}}}", "name must be a lower-case"),
        ("sources: {shop: {}}", "must have either postgres: or mongodb:"),
        ("sources: {shop: {postgres: {}, mongodb: {}}}", "must have either postgres: or mongodb:"),
        ("sources: {shop: {postgresql: {}}}", "unknown key 'postgresql'.*Did you mean postgres?"),
        ("sources: {shop: {postgres: {tables: [a.b]}}}", "key 'dsn' is missing.*Add dsn"),
        ("sources: {a: {mongodb: {uri: 'http://h', collections: [a.b]}}}", "not a MongoDB"),
        (
            "sources: {a: {mongodb: {uri: 'mongodb://me:se/cr@et@h/', collections: [a.b]}}}",
            "^(?!.*se/cr).*percent-encode special characters",
        ),
        ("sources:\n  shop: {}\n  shop: {}", "duplicate key 'shop': .*:3 "),
        ("sources:\n  on: {}", "a key that is not text: .*:2 "),
        ("sources:\n  shop: {\n", "no valid YAML .*:3"),
        ("sources: *nowhere", "no valid YAML .unknown or repeated anchor"),
        ("sources: &a [*a]", "contains itself"),
        ("sources: \0", "no valid YAML"),
        (
            """sources:
                s: {postgres: {dsn: host=h, tables: [a.b], writers: 2}}
                s_2: {postgres: {dsn: host=h, tables: [a.b]}}""",
            "source s uses slot tidemark_s_2, too",
        ),
        (shop() + "settings: {landing_byte: 1}", "unknown key 'landing_byte'.*commit_max_bytes?"),
        (shop() + "settings: {commit_max_bytes: 1}", "greater than .*settings.commit_max_bytes"),
        (shop() + "settings: {commit_max_bytes: many}", "settings.commit_max_bytes"),
        (shop() + "settings: {status_interval_seconds: .inf}", "settings.status_interval_seconds"),
    ],
)
def test_an_error_in_a_file_is_one_line(load_text: Load, text: str, line: str) -> None:
    with pytest.raises(UsageError) as raised:
        load_text(text)
    assert re.search(line, str(raised.value))
    assert "\n" not in str(raised.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no such file: .*absent.yml"):
        load(tmp_path / "absent.yml")


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "sources.yml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="not UTF-8"):
        load(path)


def test_an_unknown_source_is_reported_with_the_nearest_name(load_text: Load) -> None:
    with pytest.raises(UsageError, match=r"no source 'shops': .*Did you mean shop\?"):
        load_text(shop()).source("shops")
