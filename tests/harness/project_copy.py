"""A dbt project on this package, for a test's own views and definitions."""

import os
import shutil
from pathlib import Path

from ingest.project.dbt_package import link_package

ROOT = Path(__file__).parents[2]
NAME = "shop"
# Tests write `rows(...)`, and definitions without their materialization.
_FILES = {
    "dbt_project.yml": f"""\
name: {NAME}
version: 1.0.0
profile: tidemark
clean-targets: [target, logs]
flags:
  send_anonymous_usage_stats: false
  warn_error_options:
    error: [Deprecations]
models:
  {NAME}:
    staging:
      +schema: staging
      +materialized: view
    buckets:
      +schema: buckets
      +materialized: bucket
""",
    "macros/generate_schema_name.sql": """\
{% macro generate_schema_name(custom_schema_name, node) -%}
    {{ custom_schema_name or target.schema }}
{%- endmacro %}
""",
    "macros/rows.sql": "{% macro rows(staging_view) %}{{ return(tidemark.rows(staging_view)) }}{% endmacro %}\n",
}

# dbt leaves its log file to the garbage collector.
os.environ.setdefault("DBT_LOG_LEVEL_FILE", "none")


def make_project(folder: Path) -> None:
    """A project in `folder` that has this package, without views and definitions."""
    for name, text in _FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    shutil.copy(ROOT / "profiles/profiles.yml", folder)
    link_package(folder, ROOT)
