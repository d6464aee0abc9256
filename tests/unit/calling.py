"""The project's macros as Python functions, without dbt."""

from pathlib import Path
from typing import Any

from ingest.codegen import view_trial

MACROS = Path(__file__).parents[2] / "macros"


class Macros(view_trial.Macros):
    """The macros of some files; the object that they call `tidemark`."""

    def __init__(self, *files: str, **context: Any) -> None:
        """files: paths below `macros`, without suffix. context: what the macros use of dbt."""
        paths = [MACROS / f"{file}.sql" for file in files]
        super().__init__(paths, **context)
