"""The dbt project, called in this process."""
