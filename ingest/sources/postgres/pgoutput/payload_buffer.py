"""CopyData payloads of a replication stream as they lie in a buffer, read at vectors of positions.

A payload is a keepalive (`k`) or XLogData (`w`: start, end and send time, 24 bytes, then one
message). All positions are byte offsets into the buffer, int64; numbers on the wire are big-endian.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ingest.common.errors import Failure

I32: TypeAlias = npt.NDArray[np.int32]
I64: TypeAlias = npt.NDArray[np.int64]
U8: TypeAlias = npt.NDArray[np.uint8]
Mask: TypeAlias = npt.NDArray[np.bool_]

HEADER = 25
PADDING = 64  # a message cut short may be read past its end before that is noticed


def _numbers() -> "array[int]":
    return array("q")


@dataclass(frozen=True)
class Payloads:
    """Payloads in the order received, all in one buffer that has PADDING bytes behind the last.

    start, end: where each one begins and ends.
    """

    buffer: bytes | bytearray
    start: "array[int]" = field(default_factory=_numbers)
    end: "array[int]" = field(default_factory=_numbers)

    @classmethod
    def of(cls, messages: Sequence[bytes]) -> "Payloads":
        """A copy of `messages`, one behind the other."""
        end = array("q", accumulate(map(len, messages)))
        return cls(b"".join([*messages, bytes(PADDING)]), array("q", [0, *end[:-1]][: len(end)]), end)

    def __len__(self) -> int:
        return len(self.end)


class Wire:
    """Some payloads. offset, end: where each one begins and ends in the buffer."""

    def __init__(self, buffer: bytes | bytearray, offset: I64, end: I64, source: str) -> None:
        self.source = source
        self.offset = offset
        self.end = end
        self.size = int(end[-1])
        assert self.size < 2**31, "offsets have 32 bits; the server sends no message over 1 GiB"
        self.buffer = buffer
        self._u8 = np.frombuffer(self.buffer, np.uint8)
        self._u16 = self._overlapping(">u2")
        self._u32 = self._overlapping(">u4")
        self._i64 = self._overlapping(">i8")

    def _overlapping(self, form: str) -> npt.NDArray[np.generic]:
        """A view in which a number of type `form` begins at every byte."""
        kind = np.dtype(form)
        shape = (len(self.buffer) - kind.itemsize + 1,)
        return np.ndarray(shape, kind, self.buffer, strides=(1,))

    def u8(self, at: I64) -> U8:
        """The bytes at `at`."""
        return self._u8.take(at)

    def u16(self, at: I64) -> I64:
        """The two-byte numbers that begin at `at`."""
        return self._u16[at].astype(np.int64)

    def u32(self, at: I64) -> I64:
        """The four-byte numbers that begin at `at`."""
        return self._u32[at].astype(np.int64)

    def i64(self, at: I64) -> I64:
        """The eight-byte numbers that begin at `at`."""
        return self._i64[at].astype(np.int64)

    def message(self, index: int) -> bytes:
        """The message in XLogData payload number `index`."""
        return bytes(self.buffer[int(self.offset[index]) + HEADER : int(self.end[index])])

    def failure(self, what: str, at: int, fix: str) -> Failure:
        """A `Failure` that says in which message of the stream position `at` is."""
        index = min(int(np.searchsorted(self.end, at, side="right")), len(self.end) - 1)
        lsn = int(self._i64[int(self.offset[index]) + 1])
        return Failure(what, f"{self.source}, message at {lsn >> 32:X}/{lsn & 0xFFFFFFFF:08X}", fix)

    def cut_short(self, at: int) -> Failure:
        """The `Failure` for a message whose lengths don't add up."""
        return self.failure(
            "a message of the replication stream is damaged or ends too early",
            at,
            "Start again; if it comes back, the server speaks another version of pgoutput",
        )
