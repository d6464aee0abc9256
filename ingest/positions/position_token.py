"""Vector tokens: the position of each writer of a stream, in one short text.

`s123`: all writers are at 123. `m123~2.130~5.127`: the minimum is 123, writer 2 is at 130 and writer 5
at 127. Tokens are values: hashable, partially ordered, with a pointwise maximum. Pure.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

_NUMBER = re.compile(r"[0-9]{1,20}")


@dataclass(frozen=True)
class Token:
    """The position that a stream was read up to: `minimum` for every writer except those in `ahead`.

    ahead: (writer, position) pairs, sorted by writer, each position above the minimum. ValueError if a
    position is not, if a writer is listed twice, or if a number is negative.
    """

    minimum: int
    ahead: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "ahead", tuple(sorted(self.ahead)))
        if self.minimum < 0:
            raise ValueError(f"a token's positions are not negative: {self.minimum}")
        writers = [writer for writer, _ in self.ahead]
        for writer, position in self.ahead:
            if writer < 0:
                raise ValueError(f"a token's writers are not negative: {writer}")
            if position <= self.minimum:
                raise ValueError(f"writer {writer} at {position} is not above the minimum {self.minimum}")
            if writers.count(writer) > 1:
                raise ValueError(f"writer {writer} is listed twice")

    @classmethod
    def from_positions(cls, minimum: int, positions: Mapping[int, int]) -> "Token":
        """The token of a stream with this minimum, whose writers are at `positions`."""
        return cls(minimum, tuple((w, p) for w, p in positions.items() if p > minimum))

    @classmethod
    def parse(cls, text: str) -> "Token":
        """A token from its text; ValueError with the reason if it is not one."""
        try:
            return cls(*_parse_parts(text))
        except ValueError as error:
            raise ValueError(f"not a token: {text!r}: {error}") from None

    def __str__(self) -> str:
        if not self.ahead:
            return f"s{self.minimum}"
        return "~".join([f"m{self.minimum}", *(f"{w}.{p}" for w, p in self.ahead)])

    def position(self, writer: int) -> int:
        """The position of `writer`."""
        return dict(self.ahead).get(writer, self.minimum)

    def __le__(self, other: "Token") -> bool:
        """Whether no writer is ahead of `other`; a writer that is not listed is at the minimum."""
        writers = self._writers(other)
        return self.minimum <= other.minimum and all(self.position(w) <= other.position(w) for w in writers)

    def __lt__(self, other: "Token") -> bool:
        return self != other and self <= other

    def maximum(self, other: "Token") -> "Token":
        """The pointwise maximum: each writer at the higher of its two positions."""
        positions = {w: max(self.position(w), other.position(w)) for w in self._writers(other)}
        return Token.from_positions(max(self.minimum, other.minimum), positions)

    def _writers(self, other: "Token") -> set[int]:
        return {writer for writer, _ in (*self.ahead, *other.ahead)}


def _parse_parts(text: str) -> tuple[int, tuple[tuple[int, int], ...]]:
    head, *entries = text.split("~")
    if head[:1] not in {"s", "m"}:
        raise ValueError("it must begin with s or m")
    if head[0] == "s" and entries:
        raise ValueError("a token that begins with s lists no writers")
    if head[0] == "m" and not entries:
        raise ValueError("a token that begins with m must list the writers that are ahead")
    return _parse_number(head[1:]), tuple(map(_parse_entry, entries))


def _parse_number(text: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"{text!r} is not a number")
    return int(text)


def _parse_entry(text: str) -> tuple[int, int]:
    writer, dot, position = text.partition(".")
    if not dot:
        raise ValueError(f"{text!r} is not WRITER.POSITION")
    return _parse_number(writer), _parse_number(position)
