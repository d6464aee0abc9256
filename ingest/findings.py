"""What a check found: `error`, `warning` or `ok`, each one line in the form of our errors."""

from dataclasses import dataclass
from typing import Literal

from ingest.errors import TidemarkError


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at. what, where, fix: as of a TidemarkError.

    error: something will fail or be missing until it is mended. warning: it works, perhaps not as
    meant. ok: it is as it has to be.
    """

    level: Literal["error", "warning", "ok"]
    what: str
    where: str = ""
    fix: str = ""

    def __str__(self) -> str:
        return str(TidemarkError(self.what, self.where, self.fix))


def left_out(*, required: bool) -> Literal["error", "warning"]:
    """The level of what keeps a table from being replicated: a warning if nothing needs the table."""
    return "error" if required else "warning"


def of(error: TidemarkError) -> Finding:
    """An error as a finding."""
    return Finding("error", error.what, error.where, error.fix)
