"""The jobs of all sources and the loop of dbt runs in one process; maintenance."""
