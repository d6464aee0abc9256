"""Macros of the project called as functions, without dbt."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ingest.codegen import view_trial

MACROS = Path(__file__).parents[2] / "macros"


class Macros(view_trial.Macros):
    """The macros of some files, as what they call `tidemark`."""

    def __init__(self, *files: str, **context: Any) -> None:
        """files: below `macros`, without their ending. context: what these macros take from dbt."""
        paths = [MACROS / f"{file}.sql" for file in files]
        super().__init__(paths, **{"modules": SimpleNamespace(re=re)} | context)
