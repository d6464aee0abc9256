"""clusterTime as a position: `seconds << 32 | increment`. Pure."""

from datetime import datetime, timezone
from typing import Any

from bson.timestamp import Timestamp

_LOW = 0xFFFFFFFF
# In a resume token's KeyString: a timestamp follows, of 4 bytes of seconds and 4 of increment.
_TIMESTAMP = "82"


def position(time: Timestamp) -> int:
    """A BSON timestamp as a number."""
    return time.time << 32 | time.inc


def timestamp(at: int) -> Timestamp:
    """A position as a BSON timestamp."""
    return Timestamp(at >> 32, at & _LOW)


def of_token(data: Any) -> int:
    """The clusterTime in a resume token's `_data`: all events before it have been given out when the server gives it.

    It is the hex of a KeyString that begins with it, in all versions since 4.0. Raises ValueError.
    """
    if not isinstance(data, str) or not data.startswith(_TIMESTAMP) or len(data) < 18:
        raise ValueError("not a resume token that begins with a clusterTime")
    return int(data[2:18], 16)


def readable(at: int) -> str:
    """For people: `2026-11-22T02:00:00Z+3`."""
    moment = datetime.fromtimestamp(at >> 32, timezone.utc)
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}+{at & _LOW}"
