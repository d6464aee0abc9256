"""The rules of scripts/lint_prose.py."""

import pytest

from scripts.lint_prose import blocks, count_words, lengths, problems, sentences

PAGE = """\
# A heading of no interest

A paragraph that
has two lines. And a `code span` in [a link](page.md#anchor).

    $ code that is simply ignored

- an item
- another

```python
simply = "ignored"
```

| Name | Meaning |
|---|---|
| `a` | A cell |

term
:   Its definition.
"""


def test_code_and_headings_are_no_prose() -> None:
    assert [text for _, text, is_cell in blocks(PAGE) if not is_cell] == [
        "A paragraph that has two lines. And a `code span` in [a link](page.md#anchor).",
        "an item",
        "another",
        "term",
        "Its definition.",
    ]
    assert [text for _, text, is_cell in blocks(PAGE) if is_cell and text.strip("-")] == [
        *("Name", "Meaning", "`a`", "A cell")
    ]
    assert list(problems("page.md", PAGE)) == []


def test_sentences_end_before_a_capital_and_code_is_one_word() -> None:
    text = "It has version 1.2 of `a b c`. It runs (always). `x` follows."
    assert [count_words(each) for each in sentences(text)] == [6, 3, 2]
    assert lengths(PAGE) == [6, 6, 2, 1, 1, 2]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("word " * 30 + "end.", "page.md:1: 31 words (at most 30): " + ("word " * 30)[:60]),
        ("You can simply run it.", "page.md:1: simply -> leave it out"),
        ("It is used in order to run.", "page.md:1: in order to -> to"),
        (
            "A row is read, then it is written, and then it is deleted.",
            "page.md:1: 3 passives (at most 2): A row is read, then it is written, and then it is deleted.",
        ),
        ("| a | " + "word " * 16 + "|", "page.md:1: a cell of 16 words (at most 15)"),
    ],
)
def test_each_rule_reports_its_line(text: str, expected: str) -> None:
    assert list(problems("page.md", text)) == [expected]


def test_a_banned_word_within_another_is_allowed() -> None:
    assert list(problems("page.md", "Adjust it. The justification is in the one-just-made file.")) == []
