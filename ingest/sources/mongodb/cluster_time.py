"""clusterTime as a position: `seconds << 32 | increment`. Pure."""

from datetime import datetime, timezone
from typing import Any

from bson.timestamp import Timestamp

_LOW = 0xFFFFFFFF
# In a resume token's KeyString: a timestamp follows, of 4 bytes of seconds and 4 of increment.
_TIMESTAMP = "82"


def to_position(time: Timestamp) -> int:
    """A BSON timestamp as a position."""
    return time.time << 32 | time.inc


def to_timestamp(position: int) -> Timestamp:
    """A position as a BSON timestamp."""
    return Timestamp(position >> 32, position & _LOW)


def token_position(data: Any) -> int:
    """The clusterTime in a resume token's `_data`: the server has sent all events before it when it sends the token.

    The token is the hex of a KeyString that begins with the clusterTime, in all versions since 4.0. Raises ValueError.
    """
    if not isinstance(data, str) or not data.startswith(_TIMESTAMP) or len(data) < 18:
        raise ValueError("not a resume token that begins with a clusterTime")
    return int(data[2:18], 16)


def format_position(position: int) -> str:
    """A position as text, for messages: `2026-11-22T02:00:00Z+3`."""
    moment = datetime.fromtimestamp(position >> 32, timezone.utc)
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}+{position & _LOW}"
