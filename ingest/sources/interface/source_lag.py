"""The state of a source's log, as `tidemark status` shows it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class SourceLag:
    """The distance between a source and its stored positions; None: unknown, or not known of this kind of source.

    retained_bytes: size of the log that the server retains for the slowest slot. lag_bytes: size of the log between the
    position and the server's current one. lag_seconds: time since the commit of the oldest change that is not in the
    lake, or an upper bound; 0 if there is none. problem: of the slots, or of the connection to the source.
    """

    retained_bytes: int | None = None
    lag_bytes: int | None = None
    lag_seconds: float | None = None
    problem: str = ""
