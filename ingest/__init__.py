"""Tidemark's jobs: they land what the sources say in `raw.*`; dbt owns everything after that."""
