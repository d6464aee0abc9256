"""CopyData payloads of a replication stream in a buffer, and reads at vectors of offsets.

A payload is a keepalive (`k`) or XLogData (`w`: start, end and send time, 24 bytes, then one
message). All positions are byte offsets into the buffer, int64; numbers on the payloads are big-endian.
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
PADDING = 64  # decoding may read past the end of a truncated message before it detects the error


def _numbers() -> "array[int]":
    return array("q")


@dataclass(frozen=True)
class PayloadOffsets:
    """Payloads in the order received, in one buffer with PADDING bytes after the last. start, end: their offsets."""

    buffer: bytes | bytearray
    start: "array[int]" = field(default_factory=_numbers)
    end: "array[int]" = field(default_factory=_numbers)

    @classmethod
    def from_messages(cls, messages: Sequence[bytes]) -> "PayloadOffsets":
        """A copy of `messages` in one buffer."""
        end = array("q", accumulate(map(len, messages)))
        return cls(b"".join([*messages, bytes(PADDING)]), array("q", [0, *end[:-1]][: len(end)]), end)

    def __len__(self) -> int:
        return len(self.end)


class PayloadBuffer:
    """Payloads of one batch. offset, end: where each payload begins and ends in the buffer."""

    def __init__(self, buffer: bytes | bytearray, offset: I64, end: I64, source: str) -> None:
        self.source = source
        self.offset = offset
        self.end = end
        self.size = int(end[-1])
        assert self.size < 2**31, "offsets have 32 bits; the server sends no message of more than 1 GiB"
        self.buffer = buffer
        self._u8 = np.frombuffer(self.buffer, np.uint8)
        self._u16 = self._overlapping(">u2")
        self._u32 = self._overlapping(">u4")
        self._i64 = self._overlapping(">i8")

    def _overlapping(self, form: str) -> npt.NDArray[np.generic]:
        """A view with a number of type `form` at every byte offset."""
        kind = np.dtype(form)
        shape = (len(self.buffer) - kind.itemsize + 1,)
        return np.ndarray(shape, kind, self.buffer, strides=(1,))

    def u8(self, offset: I64) -> U8:
        """The bytes at `offset`."""
        return self._u8.take(offset)

    def u16(self, offset: I64) -> I64:
        """The two-byte numbers that begin at `offset`."""
        return self._u16[offset].astype(np.int64)

    def u32(self, offset: I64) -> I64:
        """The four-byte numbers that begin at `offset`."""
        return self._u32[offset].astype(np.int64)

    def i64(self, offset: I64) -> I64:
        """The eight-byte numbers that begin at `offset`."""
        return self._i64[offset].astype(np.int64)

    def message(self, index: int) -> bytes:
        """The message in XLogData payload number `index`."""
        return bytes(self.buffer[int(self.offset[index]) + HEADER : int(self.end[index])])

    def protocol_error(self, what: str, offset: int, fix: str) -> Failure:
        """A `Failure` that names the LSN of the message at offset `offset`."""
        index = min(int(np.searchsorted(self.end, offset, side="right")), len(self.end) - 1)
        lsn = int(self._i64[int(self.offset[index]) + 1])
        return Failure(what, f"{self.source}, message at {lsn >> 32:X}/{lsn & 0xFFFFFFFF:08X}", fix)

    def truncated_error(self, offset: int) -> Failure:
        """The `Failure` for a message whose lengths are inconsistent."""
        return self.protocol_error(
            "a message of the replication stream is damaged or ends too early",
            offset,
            "Start again; if the error returns, the server sends another version of pgoutput",
        )
