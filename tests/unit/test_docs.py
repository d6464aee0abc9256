"""Code in README.md and docs/ is valid: commands and options exist, settings load, languages parse."""

import ast
import json
import re
import shlex
import textwrap
from pathlib import Path

import click
import pytest
import yaml

from ingest.cli.main import cli
from ingest.config.sources_file import load
from tests.harness.project_copy import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^( *)```(\w+)\n(.*?)^\1```", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(
    r"(?:^ {4,}(?:\$ )?|^\$ |`)(tidemark [^`\n]*?),?(?:$|`|  +| >|#|\|)|bash_command=\"(tidemark [^\"\n]*)\"",
    re.MULTILINE,
)
ENVIRONMENT = {"SHOP_DSN": "postgresql://tidemark@localhost/shop", "REVIEWS_URI": "mongodb://localhost/"}


def blocks(language: str) -> list[tuple[str, str]]:
    """(page, text) of the blocks of code in a language."""
    return [
        (page.name, textwrap.dedent(text))
        for page in PAGES
        for _, name, text in BLOCK.findall(page.read_text())
        if name == language
    ]


def commands() -> list[str]:
    """The calls of `tidemark` in blocks and in inline code, without those that only name a command."""
    written = {line for page in PAGES for line in map("".join, COMMAND.findall(page.read_text())) if "..." not in line}
    return sorted(
        {re.sub(r"(?<=\S)[.,:;]+$", "", line.strip()).replace("NAME=VALUE", "a=1") for line in written if " -" in line}
    )


def test_commands_and_options_exist() -> None:
    written = commands()
    assert len(written) > 12
    unknown = []
    for line in written:
        name, *arguments = shlex.split(line.replace(" N", " 1"))[1:]
        command = cli.commands.get(name)
        if not command:
            unknown.append(line)
            continue
        try:
            command.make_context(name, arguments, resilient_parsing=False)
        except click.UsageError as error:
            unknown.append(f"{line}: {error.format_message()}")
    assert unknown == []


def test_every_command_that_a_page_names_exists() -> None:
    named = {name for page in PAGES for name in re.findall(r"`tidemark ([a-z-]+)", page.read_text())}
    assert named - set(cli.commands) == set()


@pytest.mark.parametrize("text", [text for _, text in blocks("yaml") if text.startswith("sources:")])
def test_settings_of_the_pages_load(text: str, tmp_path: Path) -> None:
    (tmp_path / "sources.yml").write_text(text)
    assert load(tmp_path / "sources.yml", ENVIRONMENT).sources


def test_python_yaml_and_json_parse() -> None:
    assert len(blocks("python")) >= 5
    for page, text in blocks("python"):
        compile(text, page, "exec", ast.PyCF_ONLY_AST)
    for _, text in blocks("yaml"):
        yaml.safe_load(text)
    for _, text in blocks("json"):
        json.loads(text)


def test_pages_show_no_settings_that_do_not_exist() -> None:
    documented = set(re.findall(r"^### `(\w+)`", (ROOT / "docs/reference/configuration.md").read_text(), re.MULTILINE))
    named = {
        name for page in PAGES for name in re.findall(r"`(\w+_(?:seconds|bytes|workers|threshold))`", page.read_text())
    }
    columns = {"lag_seconds", "age_seconds", "held_seconds", "unpublished_seconds", "lag_bytes", "retained_bytes"}
    assert named - documented - columns == set()
