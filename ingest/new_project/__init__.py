"""`tidemark init`: the files of a new dbt project."""
