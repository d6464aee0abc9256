"""The project's macros as Python functions, without dbt."""

from pathlib import Path
from typing import Any

from ingest.codegen import view_trial

MACROS = Path(__file__).parents[2] / "macros"


class Macros(view_trial.Macros):
    """The macros of some folders, without materializations; the object that they call `tidemark`."""

    def __init__(self, *folders: str, **context: Any) -> None:
        """folders: below `macros`. context: what the macros use of dbt."""
        files = [file for folder in folders for file in (MACROS / folder).glob("*.sql")]
        super().__init__([file for file in files if "{% materialization" not in file.read_text()], **context)
