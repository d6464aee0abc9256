"""The adapter's macros as a package of dbt. The project's own are in `macros/`."""

from pathlib import Path

PACKAGE_PATH = str(Path(__file__).parent)
