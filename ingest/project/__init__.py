"""Runs the dbt project in this process."""
