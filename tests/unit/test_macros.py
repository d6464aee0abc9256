"""Every public macro has a comment and a file of its name; one whose name begins with _ is private to its folder."""

import re
from pathlib import Path

import pytest
import yaml

MACROS = Path(__file__).parents[2] / "macros"
FILES = sorted(MACROS.rglob("*.sql"))
DEFINED = re.compile(r"(?P<comment>-?#\}\s*)?\{%-?\s*(?:macro|materialization) (?P<name>\w+)")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_macros_are_documented(file: Path) -> None:
    definitions = list(DEFINED.finditer(file.read_text()))
    assert definitions
    assert [match["name"] for match in definitions if not match["comment"] and not match["name"].startswith("_")] == []


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_public_macro_is_in_the_file_of_its_name(file: Path) -> None:
    """The casts of one kind of source are in the file of their prefix."""
    public = [match["name"] for match in DEFINED.finditer(file.read_text()) if not match["name"].startswith("_")]
    if file.parent.name == "casts" and len(public) > 1:
        assert {name.partition("_")[0] for name in public} == {file.stem}
    else:
        assert public == [file.stem]


def test_names_with_an_underscore_are_not_used_elsewhere() -> None:
    private = {match["name"]: file for file in FILES for match in DEFINED.finditer(file.read_text())}
    private = {name: file for name, file in private.items() if name.startswith("_")}
    texts = {file.parent: "" for file in FILES}
    for file in FILES:
        texts[file.parent] += file.read_text()
    strangers = [
        name
        for name, file in private.items()
        for folder, text in texts.items()
        if folder != file.parent and f"tidemark.{name}" in text
    ]
    assert strangers == []


def test_macros_that_users_call_are_described_with_their_arguments() -> None:
    described = {
        macro["name"]: [argument["name"] for argument in macro["arguments"]]
        for macro in yaml.safe_load((MACROS / "_macros.yml").read_text())["macros"]
    }
    parameters = {
        name: [parameter.partition("=")[0] for parameter in arguments.split(", ")]
        for file in FILES
        for name, arguments in re.findall(r"\{%-? macro (\w+)\((.*)\) -%\}", file.read_text())
        if name in described or (file.parent.name == "casts" and not name.startswith("_"))
    }
    assert described == parameters
