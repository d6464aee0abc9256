"""The adapter's version, which dbt shows."""

version = "0.1.0"
