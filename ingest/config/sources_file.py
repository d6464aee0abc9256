"""`sources.yml` as validated, frozen models: sources, tables and settings.

`load` is the only entry point. Every error in the file is a UsageError with the problem, the line and key,
and the fix. Connection strings are SecretStr: never part of an error, a repr or a log line.
"""

import difflib
import json
import re
from collections.abc import Collection, Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    model_validator,
)

from ingest.common.errors import UsageError
from ingest.config.job_settings import JobSettings
from ingest.config.yaml_file import KeyPath, YamlDocument, read_yaml

_NAME_LIMIT = 63  # bytes of a Postgres identifier
SOURCE_NAME = r"[a-z][a-z0-9_]{0,39}"
_EXCLUSION_PREFIX = "!"  # of a pattern
SYSTEM_DATABASES = ("admin", "config", "local")  # databases of MongoDB


def _check_source_name(name: str) -> str:
    if not re.fullmatch(SOURCE_NAME, name):
        raise ValueError("a source's name must be a lower-case letter, then up to 39 of a-z, 0-9 and _")
    return name


def _check_slot_name(name: str) -> str:
    if not re.fullmatch(rf"[a-z0-9_]{{1,{_NAME_LIMIT}}}", name):
        raise ValueError(f"a slot's name must be 1 to {_NAME_LIMIT} of a-z, 0-9 and _")
    return name


def _check_publication_name(name: str) -> str:
    if not name or len(name.encode()) > _NAME_LIMIT or "\0" in name:
        raise ValueError(f"a publication's name must have 1 to {_NAME_LIMIT} bytes")
    return name


def including_patterns(patterns: Iterable[str]) -> list[str]:
    """The patterns that include, without those that exclude."""
    return [pattern for pattern in patterns if not pattern.startswith(_EXCLUSION_PREFIX)]


def is_selected(name: str, patterns: Collection[str]) -> bool:
    """Whether a pattern matches `name`, and none with a leading `!` does; case-sensitive, in any order."""
    is_included = any(fnmatchcase(name, pattern) for pattern in including_patterns(patterns))
    return is_included and not is_excluded(name, patterns)


def is_excluded(name: str, patterns: Collection[str]) -> bool:
    """Whether a pattern with a leading `!` matches `name`."""
    exclusions = (
        pattern.removeprefix(_EXCLUSION_PREFIX) for pattern in patterns if pattern.startswith(_EXCLUSION_PREFIX)
    )
    return any(fnmatchcase(name, pattern) for pattern in exclusions)


def matching_pattern(name: str) -> str:
    """The pattern that matches only `name`."""
    return re.sub(r"[*?[]", r"[\g<0>]", name)


def excluding_pattern(name: str) -> str:
    """The pattern that excludes only `name`, as written in sources.yml."""
    return json.dumps(f"{_EXCLUSION_PREFIX}{matching_pattern(name)}".replace("$", "$$"), ensure_ascii=False)


def _check_pattern(pattern: str) -> str:
    namespace, separator, name = pattern.removeprefix(_EXCLUSION_PREFIX).partition(".")
    if not (namespace and separator and name):
        raise ValueError('a pattern must have two parts, as in "public.*"')
    return pattern


def _check_collection_pattern(pattern: str) -> str:
    if _check_pattern(pattern).partition(".")[0] in SYSTEM_DATABASES:
        raise ValueError(
            "the system databases (admin, config, local) can't be replicated: change streams do not contain them"
        )
    return pattern


def _check_some_included(patterns: tuple[str, ...]) -> tuple[str, ...]:
    if patterns and not including_patterns(patterns):
        raise ValueError('the patterns only exclude: add one that includes, as in ["public.*", "!public.audit_log"]')
    return patterns


def _check_postgres_dsn(dsn: SecretStr) -> SecretStr:
    text = dsn.get_secret_value()
    try:
        parameters = conninfo_to_dict(text)
    except psycopg.Error:  # its message contains the string
        parameters = {}
    if not parameters:
        raise ValueError(
            "not a Postgres connection string: write postgresql://user@host/database or host=NAME dbname=NAME"
        )
    # An unescaped `/` or `@` in a URI's password ends it early, and the rest would be shown as host or port.
    if not re.fullmatch(r"[\d,]*", str(parameters.get("port") or "")):
        raise ValueError("the port is not a number: percent-encode special characters in the password")
    if "://" in text and any("@" in str(parameters.get(part) or "")[1:] for part in ("host", "dbname")):
        raise ValueError("an @ in the host or the database: percent-encode special characters in the password")
    return dsn


def _check_mongodb_uri(uri: SecretStr) -> SecretStr:
    if not re.match(r"mongodb(\+srv)?://[^/]", uri.get_secret_value()):
        raise ValueError('not a MongoDB connection string: write "mongodb://host/?replicaSet=..."')
    # An unescaped `/` in the password ends the hosts early, and the rest would be shown as the database.
    if re.match(r"[^:]+://[^/?]*/[^?]*@", uri.get_secret_value()):
        raise ValueError("an @ in the database: percent-encode special characters in the password")
    return uri


M = TypeVar("M", bound=BaseModel)
Pattern = Annotated[str, AfterValidator(_check_pattern)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


_SOFT_DELETES = (
    "Whether the stream goes on during snapshots. The models rely on tombstones then. A consumer that applies the raw "
    "tables and deletes rows at once would bring deleted rows back. With `false` the stream pauses while a table of "
    "the source waits for a snapshot or is in one."
)
_SNAPSHOT_HOLD = (
    "Which models wait during a snapshot of a table: the definitions over the table (`definition`), or all models of "
    "the source (`source`)."
)


class PostgresSource(_Model):
    """A Postgres database: the selected tables, and the slots and publications for them."""

    name: Annotated[str, AfterValidator(_check_source_name)]
    dsn: Annotated[SecretStr, AfterValidator(_check_postgres_dsn)] = Field(
        description="Connection string: `postgresql://user@host/database`, or `host=... dbname=...`. All parameters of "
        "libpq are allowed, `sslmode` for example.",
    )
    tables: Annotated[tuple[Pattern, ...], AfterValidator(_check_some_included)] = Field(
        min_length=1,
        description="Patterns of `schema.table` with `*`, `?` and `[...]`, unquoted and case-sensitive. A pattern with "
        'a leading `!` excludes, in any order: `["public.*", "!public.audit_log"]`. The root of a partitioned table '
        "includes its partitions. The rows of a table that is no longer selected are deleted.",
    )
    slot: Annotated[str, AfterValidator(_check_slot_name)] = Field(
        "",
        description="The replication slot, created if it is missing. Two lakes never share a slot: before the first "
        "start in a lake, an existing `pgoutput` slot of this name is dropped and created again. A later change of "
        "the name takes effect with `tidemark resnapshot --all`.",
    )
    publication: Annotated[str, AfterValidator(_check_publication_name)] = Field(
        "",
        description="The publication, created with the selected tables if it is missing. An existing publication is "
        "used unchanged.",
    )
    writers: int = Field(
        1,
        ge=1,
        le=64,
        description="Number of stream writers, each with a slot and a publication. `tidemark set-writers` changes it.",
    )
    soft_deletes: bool = Field(True, description=_SOFT_DELETES)
    snapshot_hold: Literal["definition", "source"] = Field("definition", description=_SNAPSHOT_HOLD)

    @model_validator(mode="before")
    @classmethod
    def _add_defaults(cls, values: Any) -> Any:
        if not isinstance(values, dict):  # another kind of source
            return values
        default_name = f"tidemark_{values.get('name', '')}"
        return {"slot": default_name, "publication": default_name, **values}

    @model_validator(mode="after")
    def _check_numbered_names(self) -> "PostgresSource":
        _check_slot_name(self.slot_of(self.writers))
        _check_publication_name(self.publication_of(self.writers))
        return self

    def slot_of(self, writer: int) -> str:
        """The slot of `writer` (from 1): the configured name, from writer 2 on with a suffix `_2`, `_3`, ..."""
        return self.slot if writer == 1 else f"{self.slot}_{writer}"

    def publication_of(self, writer: int) -> str:
        """The publication of `writer`, with the same suffixes as the slot."""
        return self.publication if writer == 1 else f"{self.publication}_{writer}"

    def selects(self, table_name: str) -> bool:
        """Whether the patterns select `schema.table`, unquoted and case-sensitive."""
        return is_selected(table_name, self.tables)

    def names(self, table_name: str) -> bool:
        """Whether the patterns select `schema.table`, and one of them without a wildcard."""
        return table_name in self.tables and not has_wildcard(table_name) and self.selects(table_name)


def has_wildcard(pattern: str) -> bool:
    """Whether a pattern has wildcards, so that it may match several names."""
    return any(wildcard in pattern for wildcard in "*?[")


class MongoSource(_Model):
    """A MongoDB replica set or cluster, and the selected collections."""

    name: Annotated[str, AfterValidator(_check_source_name)]
    uri: Annotated[SecretStr, AfterValidator(_check_mongodb_uri)] = Field(
        description="Connection string: `mongodb://host/?replicaSet=name`, or `mongodb+srv://host`. Of a sharded "
        "cluster, name one router.",
    )
    collections: Annotated[
        tuple[Annotated[str, AfterValidator(_check_collection_pattern)], ...], AfterValidator(_check_some_included)
    ] = Field(
        min_length=1,
        description="Patterns of `database.collection` with `*`, `?` and `[...]`, case-sensitive. `*` also matches "
        "dots. A pattern with a leading `!` excludes, in any order. All processes need the same patterns. The rows "
        "of a collection that is no longer selected are deleted.",
    )
    soft_deletes: bool = Field(True, description=_SOFT_DELETES)
    snapshot_hold: Literal["definition", "source"] = Field("definition", description=_SNAPSHOT_HOLD)

    @property
    def writers(self) -> int:
        """Always 1: a change stream can't be split between writers."""
        return 1

    def selects(self, collection: str) -> bool:
        """Whether the patterns select `database.collection`, case-sensitive."""
        return is_selected(collection, self.collections)

    def names(self, collection: str) -> bool:
        """Whether the patterns select `database.collection`, and one of them without a wildcard."""
        return collection in self.collections and not has_wildcard(collection) and self.selects(collection)


Source = PostgresSource | MongoSource
_KINDS: Mapping[str, type[PostgresSource] | type[MongoSource]] = {
    "postgres": PostgresSource,
    "mongodb": MongoSource,
}


class Settings(_Model):
    """The whole file: `sources` by name, in the file's order, and the jobs' `settings`."""

    sources: dict[str, Source]
    settings: JobSettings = JobSettings()

    def source(self, name: str) -> Source:
        """The source `name`; UsageError with the closest name if there is none."""
        if name not in self.sources:
            raise UsageError(f"no source {name!r}", "sources.yml", _suggest_name(name, self.sources))
        return self.sources[name]

    def only(self, names: Collection[str]) -> "Settings":
        """The same settings with only these sources (none named: all). Raises UsageError for an unknown name."""
        sources = {name: self.source(name) for name in names}
        return self.model_copy(update={"sources": sources}) if sources else self


def load(path: Path | str = "sources.yml", environment: Mapping[str, str] | None = None) -> Settings:
    """The settings in `path`, `${NAME}` taken from `environment` (else the process's).

    Raises UsageError.
    """
    file = read_yaml(Path(path), environment)
    content = _check_mapping(file, (), file.data, ("sources", "settings"))
    sources = _check_mapping(file, ("sources",), content.get("sources"))
    if not sources:
        raise UsageError(
            "no sources",
            file.where(("sources",)),
            "Add one, as in sources: {shop: {postgres: {...}}}",
        )
    parsed_sources = {name: _parse_source(file, name, body) for name, body in sources.items()}
    _check_slots(file, parsed_sources)
    settings: KeyPath = ("settings",)
    job_values = content.get("settings")
    job_settings = _check_mapping(file, settings, {} if job_values is None else job_values, JobSettings.model_fields)
    return Settings(sources=parsed_sources, settings=_validate(file, settings, JobSettings, job_settings))


def _parse_source(file: YamlDocument, name: str, body: Any) -> Source:
    keys: KeyPath = ("sources", name)
    body = _check_mapping(file, keys, body, _KINDS)
    if len(body) != 1:
        raise UsageError(
            "a source must have either postgres: or mongodb:",
            file.where(keys),
            "Keep one of them",
        )
    ((kind, options),) = body.items()
    model = _KINDS[kind]
    options = _check_mapping(file, (*keys, kind), options, [field for field in model.model_fields if field != "name"])
    return _validate(file, (*keys, kind), model, {"name": name, **options})


def _check_slots(file: YamlDocument, sources: Mapping[str, Source]) -> None:
    """Raises UsageError if two sources use one slot, as the second writer of `shop` and a source `shop_2` do."""
    sources_by_slot: dict[tuple[str, str], str] = {}
    for name, source in sources.items():
        if isinstance(source, PostgresSource):
            for writer in range(1, source.writers + 1):
                slot = source.slot_of(writer)
                first_source = sources_by_slot.setdefault((source.dsn.get_secret_value(), slot), name)
                if first_source != name:
                    where = file.where(("sources", name))
                    raise UsageError(f"source {first_source} uses slot {slot}, too", where, "Choose another slot")


def _check_mapping(file: YamlDocument, keys: KeyPath, value: Any, known_keys: Any = None) -> dict[str, Any]:
    """`value` if it is a mapping with only `known_keys` (None: any keys)."""
    if not isinstance(value, dict):
        raise UsageError("expected a mapping", file.where(keys), "Write it as `key: value` lines")
    for key in value:
        if known_keys is not None and key not in known_keys:
            raise UsageError(f"unknown key {key!r}", file.where((*keys, key)), _suggest_name(key, known_keys))
    return value


def _suggest_name(name: str, known_names: Any) -> str:
    similar_names = difflib.get_close_matches(name, list(known_names), n=1)
    return f"Did you mean {similar_names[0]}?" if similar_names else f"Known are: {', '.join(known_names)}"


def _validate(file: YamlDocument, keys: KeyPath, model: type[M], values: dict[str, Any]) -> M:
    try:
        return model.model_validate(values)
    except ValidationError as error:
        first_error = error.errors(include_url=False, include_context=False, include_input=False)[0]
    location = first_error["loc"]
    if first_error["type"] == "missing":
        raise UsageError(f"key {location[-1]!r} is missing", file.where(keys), f"Add {location[-1]}: ...")
    if first_error["type"] == "too_short":
        raise UsageError("the list is empty", file.where((*keys, *location)), "Add an entry to it")
    key_path = keys[:2] if location == ("name",) else (*keys, *location)
    message = first_error["msg"].removeprefix("Value error, ").replace("tuple", "list")
    raise UsageError(message[:1].lower() + message[1:], file.where(key_path), "Change the value")
