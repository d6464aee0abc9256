"""Writes the pages of docs/reference that have a source of truth: `python -m scripts.generate_docs`.

Settings and keys come from the pydantic models, commands from click, tables from the models' yml, errors from the
code, environment variables from the code that reads them. `tests/unit/test_generated_docs.py` compares.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import annotated_types
import click
import yaml
from pydantic import BaseModel, ByteSize
from pydantic.fields import FieldInfo

from ingest.cli.main import cli
from ingest.config.job_settings import JobSettings
from ingest.config.sources_file import MongoSource, PostgresSource
from ingest.lake import raw_schema
from scripts import documented_errors

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "docs" / "reference"
_HEADER = (
    "<!-- Written by scripts/generate_docs.py: edit the source that it names, then run `make generate-docs`. -->\n"
)

_EXAMPLE = """\
```yaml
sources:
  shop: {postgres: {dsn: "${SHOP_DSN}", tables: ["public.*"]}}
  reviews: {mongodb: {uri: "${REVIEWS_URI}", collections: ["reviews.*"]}}
settings: {snapshot_workers: 4}
```"""
# What each variable is for. The keys must be the variables that the code reads, no more and no less.
VARIABLES = {
    "DBT_LOG_PATH": "The folder of dbt's log. If dbt starts Spark by itself, Java's output is in `spark.log` there.",
    "DBT_PROFILES_DIR": "The folder of `profiles.yml`. dbt and the jobs read the same file.",
    "TIDEMARK_TARGET": "The output of `profiles.yml` that dbt and the jobs use. `--target` has precedence.",
    "TIDEMARK_LAKE": "The folder of the lake of the target `local`. It must be an absolute path.",
    "TIDEMARK_CORES": "The number of cores that Spark uses in the target `local`; `*` is all of them. "
    "Each join and sort has as many tasks, and with `*` two.",
    "TIDEMARK_DRIVER_MEMORY": "The Java heap of the target `local`. It limits the "
    "[largest row](../guides/operate.md#large-rows).",
    "TIDEMARK_JAVA_OPTIONS": "More options for the Java command line of the target `local`.",
    "TIDEMARK_REMOTE": "The address of the Spark Connect server of the target `cluster`.",
    "TIDEMARK_THRIFT_HOST": "The host of the Thrift server of the target `thrift`, for dbt alone.",
    "TIDEMARK_THRIFT_PORT": "The port of that server.",
    "TIDEMARK_THRIFT_USER": "The user at that server.",
    "PGGSSENCMODE": "GSS encryption of Postgres connections, if the DSN has no `gssencmode`. Default: `disable`.",
    "PWD": "The current folder. The target `local` puts the lake below it.",
}
_VARIABLE_READ = re.compile(
    r"""(?:env_var\(|environ(?:\.get|\.setdefault)?[(\[])\s*['"](?P<name>[A-Z_]+)['"](?:,\s*(?P<default>['"][^'"]*['"]))?"""
)
_INTERNAL_VARIABLES = {"PYSPARK_PYTHON"}  # set for Spark's workers, not by users


def _make_page(title: str, intro: str, parts: list[str]) -> str:
    return "\n\n".join([_HEADER + f"\n# {title}", intro, *parts]) + "\n"


def configuration() -> str:
    """The keys of sources.yml and of `settings`."""
    intro = (
        "`sources.yml` names the sources and the settings of the jobs. Tidemark rejects unknown keys and replaces "
        "`${NAME}` by the environment variable. Spark and the catalog are in `profiles.yml`. "
        "[Definitions](../guides/definitions.md#settings) have their settings in `meta`."
    )
    parts = [_EXAMPLE]
    for title, model in (("Keys of a Postgres source", PostgresSource), ("Keys of a MongoDB source", MongoSource)):
        parts += [f"## {title}", *_describe_fields(model, {"name"})]
    units = "Sizes are bytes, as `67108864` or `64MiB`. Times are seconds. All processes of a lake need the same file."
    return _make_page(
        "Configuration", intro, [*parts, "## Settings of the jobs", units, *_describe_fields(JobSettings, set())]
    )


def _describe_fields(model: type[BaseModel], hidden: set[str]) -> Iterator[str]:
    prefix = {PostgresSource: "postgres-", MongoSource: "mongodb-"}.get(model, "")
    for name, field in model.model_fields.items():
        if name not in hidden:
            yield f"### `{name}` {{ #{prefix}{name} }}"
            yield f"{_describe_default(field)}{_describe_limits(field)}"
            yield str(field.description)


def _describe_default(field: FieldInfo) -> str:
    if field.is_required():
        return "Required."
    if field.default == "":
        return "Default: `tidemark_<source>`."
    return f"Default: `{_format_value(field.default)}`."


def _describe_limits(field: FieldInfo) -> str:
    to_size = ByteSize if isinstance(field.default, ByteSize) else (lambda number: number)
    words = {
        annotated_types.Ge: ("at least", "ge"),
        annotated_types.Gt: ("more than", "gt"),
        annotated_types.Le: ("at most", "le"),
        annotated_types.Lt: ("less than", "lt"),
    }
    limits = [
        f"{word} `{_format_value(to_size(getattr(constraint, name)))}`"
        for constraint in field.metadata
        for kind, (word, name) in words.items()
        if isinstance(constraint, kind)
    ]
    text = ", ".join(limits)
    return f" {text[0].upper()}{text[1:]}." if text else ""


def _format_value(value: Any) -> str:
    if isinstance(value, ByteSize):
        return value.human_readable().replace(".0", "")
    if isinstance(value, bool):
        return str(value).lower()
    return (
        f"{value:g}"
        if isinstance(value, float) and value < 1e5
        else str(int(value) if isinstance(value, float) else value)
    )


def environment() -> str:
    """The environment variables, with the defaults of the code that reads them."""
    intro = (
        "Tidemark reads these variables. `sources.yml` may name any other variable as `${NAME}`, for passwords for "
        "example. libpq's own variables, such as `PGSSLROOTCERT`, apply to Postgres connections."
    )
    parts = []
    for name, default in sorted(find_variables().items()):
        default_text = f"Default: `{default}`. " if default else ""
        parts.append(f"## `{name}` {{ #{name.lower()} }}\n\n{default_text}{VARIABLES[name]}")
    return _make_page("Environment variables", intro, parts)


def find_variables() -> dict[str, str]:
    """{environment variable that the product reads: its default, or the empty text}."""
    defaults: dict[str, str] = {}
    for folder in ("ingest", "dbt", "profiles", "macros"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in {".py", ".yml", ".sql"}:
                for match in _VARIABLE_READ.finditer(path.read_text()):
                    default = (match["default"] or "").strip("'\"")
                    if match["name"] not in _INTERNAL_VARIABLES:
                        defaults[match["name"]] = defaults.get(match["name"]) or default
    return defaults


def command_line() -> str:
    """Each command with its help and options."""
    intro = (
        "Every command has `--help`. An error is one line: what, where, what to do. "
        "Exit codes: 0 success, 1 failure, 2 wrong usage ([all](../guides/operate.md#exit-codes))."
    )
    return _make_page("Command line", intro, list(_describe_commands(cli, "tidemark")))


def _describe_commands(group: click.Group, path: str) -> Iterator[str]:
    for name in sorted(group.commands):
        command = group.commands[name]
        if isinstance(command, click.Group):
            yield from _describe_commands(command, f"{path} {name}")
            continue
        context = click.Context(command, info_name=f"{path} {name}")
        usage = " ".join([f"{path} {name}", *command.collect_usage_pieces(context)])
        paragraphs = [" ".join(text.split()) for text in (command.help or "").replace("\b", "").split("\n\n")]
        options = [_describe_option(option, context) for option in command.params if isinstance(option, click.Option)]
        yield "\n\n".join([f"## {path} {name}", f"```text\n{usage}\n```", *paragraphs, "\n".join(options)])


def _describe_option(option: click.Option, context: click.Context) -> str:
    names, text = option.get_help_record(context) or ("", "")
    return f"- `{names}`: {' '.join(text.split())}"


def tables() -> str:
    """The tables of raw and core, with their columns."""
    intro = (
        "The jobs write `raw`, dbt writes `core`. Read positions first and data after: a position is stored after its "
        "data. [Definitions](../guides/definitions.md) and [their op logs](../guides/reading-buckets.md#the-op-log) "
        "have tables in `buckets`."
    )
    doc_blocks = dict(re.findall(r"{% docs (\w+) %}(.*?){% enddocs %}", (ROOT / "models/core/columns.md").read_text()))

    def resolve_docs(text: str) -> str:
        return " ".join(re.sub(r'{{ doc\("tidemark", "(\w+)"\) }}', lambda match: doc_blocks[match[1]], text).split())

    parts = ["## Schema `raw` { #raw }"]
    raw_source = yaml.safe_load((ROOT / "models/raw/sources.yml").read_text())["sources"][0]
    for table in raw_source["tables"]:
        types = raw_schema.TABLES[f"raw.{table['name']}"].columns
        parts += _describe_table(f"raw.{table['name']}", table, resolve_docs, types)
    parts.append("## Schema `core` { #core }")
    for path in sorted((ROOT / "models/core").glob("*.yml")):
        for model in yaml.safe_load(path.read_text()).get("models", []):
            parts += _describe_table(f"core.{model['name']}", model, resolve_docs, {})
    return _make_page("Tables and columns", intro, parts)


def _describe_table(name: str, table: dict[str, Any], resolve_docs: Any, types: Any) -> Iterator[str]:
    yield f"### `{name}` {{ #{name.replace('.', '-')} }}"
    yield resolve_docs(table["description"])
    yield "\n".join(
        f"- `{column['name']}`{_describe_type(types.get(column['name']))}: {resolve_docs(column['description'])}"
        for column in table.get("columns", [])
    )


def _describe_type(kind: str | None) -> str:
    return f" ({'struct list' if 'struct' in kind.lower() else kind.lower()})" if kind else ""


def errors() -> str:
    """The messages of the code and of the macros, by area."""
    intro = (
        "An error is one line: what happened, where, and what to do. This page lists what happened and what to do; "
        "`...` stands for a name or a number. [Troubleshooting](../guides/troubleshooting.md) explains the usual ones."
    )
    parts = []
    for area, area_errors in documented_errors.find_errors(ROOT).items():
        lines = (f"- `{what}`" + (f"\n    {fix}" if fix else "") for what, fix in area_errors)
        parts += [f"## {area}", "\n".join(lines)]
    return _make_page("Errors", intro, parts)


PAGES = {
    "configuration.md": configuration,
    "environment.md": environment,
    "cli.md": command_line,
    "tables.md": tables,
    "errors.md": errors,
}


def main() -> None:
    """Writes all pages."""
    for name, write in PAGES.items():
        (REFERENCE / name).write_text(write())


if __name__ == "__main__":
    main()
