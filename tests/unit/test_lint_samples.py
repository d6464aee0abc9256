"""The models in the documentation are found and linted like the project's own."""

from pathlib import Path

from sqlfluff.core import FluffConfig, Linter

from scripts.lint_samples import problems, samples

PROJECT = Path(__file__).parents[2]

PAGE = """\
# A page

    $ tidemark check

1. In a list:

       {{ config(meta={'unique_key': ['id']}) }}
       select ID from {{ ref('t') }}

    GRANT SELECT ON t TO tidemark;

```sql
select id from {{ ref('t') }} where true
```

```python
f"{{"
```
"""


def test_only_models_are_found_in_blocks_of_both_kinds() -> None:
    assert [(first, text.splitlines()[-1]) for first, text in samples(PAGE)] == [
        (7, "select ID from {{ ref('t') }}"),
        (13, "select id from {{ ref('t') }} where true"),
    ]


def test_an_error_in_a_model_is_reported_with_its_line() -> None:
    linter = Linter(config=FluffConfig.from_path(str(PROJECT)))
    actual = [line.split(" ")[:2] for line in problems("page.md", PAGE, linter)]
    assert actual == [["page.md:8:", "CP02"], ["page.md:13:", "LT14"]]


def test_the_pages_of_the_project_show_models() -> None:
    pages = ("README.md", "docs/quickstart.md", "docs/guides/definitions.md")
    shown = {page: len(list(samples((PROJECT / page).read_text()))) for page in pages}
    assert shown == {"README.md": 1, "docs/quickstart.md": 1, "docs/guides/definitions.md": 3}
