"""Vector tokens: how far each writer of a stream is, in one short text.

`s123`: all writers are at 123. `m123~2.130~5.127`: none is behind 123, writer 2 is at 130 and writer 5
at 127. Tokens are values: hashable, partly ordered (of two, neither need be ahead), with a pointwise
maximum. Pure.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

_NUMBER = re.compile(r"[0-9]{1,20}")


@dataclass(frozen=True)
class Token:
    """Where a stream was read to: `minimum` for every writer but those in `ahead`.

    ahead: (writer, position) pairs, by writer, each position above the minimum. ValueError if one is
    not, if a writer is there twice, or if a number is negative.
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
                raise ValueError(f"writer {writer} is there twice")

    @classmethod
    def of(cls, minimum: int, positions: Mapping[int, int]) -> "Token":
        """The token of a stream persisted up to `minimum`, its writers at `positions`."""
        return cls(minimum, tuple((w, p) for w, p in positions.items() if p > minimum))

    @classmethod
    def parse(cls, text: str) -> "Token":
        """A token from its text; ValueError that says what is wrong with it."""
        try:
            return cls(*_parts(text))
        except ValueError as error:
            raise ValueError(f"not a token: {text!r}: {error}") from None

    def __str__(self) -> str:
        if not self.ahead:
            return f"s{self.minimum}"
        return "~".join([f"m{self.minimum}", *(f"{w}.{p}" for w, p in self.ahead)])

    def position(self, writer: int) -> int:
        """How far `writer` is."""
        return dict(self.ahead).get(writer, self.minimum)

    def __le__(self, other: "Token") -> bool:
        """No writer is further here than there, those that are named in neither included."""
        return self.minimum <= other.minimum and all(self.position(w) <= other.position(w) for w in self._named(other))

    def __lt__(self, other: "Token") -> bool:
        return self != other and self <= other

    def maximum(self, other: "Token") -> "Token":
        """The least token that neither of the two is ahead of: each writer where it is further."""
        positions = {w: max(self.position(w), other.position(w)) for w in self._named(other)}
        return Token.of(max(self.minimum, other.minimum), positions)

    def _named(self, other: "Token") -> set[int]:
        return {writer for writer, _ in (*self.ahead, *other.ahead)}


def _parts(text: str) -> tuple[int, tuple[tuple[int, int], ...]]:
    head, *entries = text.split("~")
    if head[:1] not in {"s", "m"}:
        raise ValueError("it begins with neither s nor m")
    if head[0] == "s" and entries:
        raise ValueError("only one that begins with m names writers")
    if head[0] == "m" and not entries:
        raise ValueError("one that begins with m names the writers that are ahead")
    return _number(head[1:]), tuple(map(_entry, entries))


def _number(text: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"{text!r} is not a number")
    return int(text)


def _entry(text: str) -> tuple[int, int]:
    writer, dot, position = text.partition(".")
    if not dot:
        raise ValueError(f"{text!r} is not WRITER.POSITION")
    return _number(writer), _number(position)
