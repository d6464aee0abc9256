"""A bounded batch of messages of a pgoutput stream, indexed: the type and the transaction of each message.

Only Begin, Commit and keepalives are parsed here. A transaction may be open before and after a batch. Raises `Failure`
for input that is not protocol version 1, or out of order.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from ingest.sources.postgres.pgoutput.payload_buffer import HEADER, I64, U8, PayloadBuffer, PayloadOffsets

# Small enough for the CPU cache, since decoding passes over all of a batch once per column, and for 32-bit offsets. A
# larger message is a batch of its own.
MESSAGE_BATCH_BYTES = 2 * 2**20
_EPOCH_US = 946_684_800_000_000  # 2000-01-01

KEEPALIVE, XLOG_DATA = b"kw"
BEGIN, COMMIT, RELATION, MESSAGE, TRUNCATE = b"BCRMT"
ROWS = b"IUD"
_END_LSN = 10  # in a Commit: type, flags, commit_lsn, then this one

# The minimum length of a message including its type. Y (type) and O (origin) are not used.
_SHORTEST = {"B": 21, "C": 26, "R": 10, "Y": 7, "O": 10, "M": 15, "T": 6, "I": 8, "U": 8, "D": 8}
_LENGTH = np.full(256, -1, np.int64)
_LENGTH[[ord(letter) for letter in _SHORTEST]] = list(_SHORTEST.values())
_OPEN = np.full(256, -1, np.int64)  # how many transactions are open after it; -1: either
_OPEN[list(b"BTIUD")] = 1
_OPEN[COMMIT] = 0


@dataclass(frozen=True)
class Transaction:
    """An open transaction. ordinals: how many are assigned so far. commit_ts: microseconds since 1970, UTC."""

    commit_lsn: int
    commit_ts: int
    xid: int
    ordinals: int


@dataclass(frozen=True)
class MessageBatch:
    """Vectors by message number, and by transaction number.

    By message: start and end offset; kind: the type (keepalives: `k`); transaction: the number of the message's
    transaction, or of the one before it; 0: the one carried over; open_after: the number of open transactions after it.
    By transaction: begin (its first message), commit_lsn, commit_ts, xid.
    """

    payloads: PayloadBuffer
    start: I64
    end: I64
    kind: U8
    transaction: I64
    open_after: I64
    begin: I64
    commit_lsn: I64
    commit_ts: I64
    xid: I64

    def find_messages(self, *kinds: int) -> I64:
        """The numbers of the messages of these types."""
        is_kind = np.zeros(len(self.kind), np.bool_)
        for kind in kinds:
            is_kind |= self.kind == kind
        return np.flatnonzero(is_kind)

    def change_lsn(self, messages: I64) -> I64:
        """The LSNs of the changes of these messages."""
        return self.payloads.i64(self.payloads.offset[messages] + 1)

    def positions(self) -> I64:
        """The positions that the batch proves: ends of transactions, and keepalives outside of transactions."""
        idle = np.flatnonzero((self.kind == KEEPALIVE) & (self.open_after == 0))
        ends = self.payloads.i64(self.start[self.find_messages(COMMIT)] + _END_LSN)
        return np.concatenate((ends, self.payloads.i64(self.payloads.offset[idle] + 1)))

    def reply_requested(self) -> bool:
        """Whether a keepalive asks for a status at once."""
        return bool(self.payloads.u8(self.payloads.offset[self.find_messages(KEEPALIVE)] + 17).any())

    def open_transaction(self, ordinals: int) -> Transaction | None:
        """The transaction that is open at the end of the batch, with `ordinals` assigned so far; None: none is."""
        if not len(self.kind) or not self.open_after[-1]:
            return None
        number = int(self.transaction[-1])
        lsn, ts, xid = self.commit_lsn[number], self.commit_ts[number], self.xid[number]
        return Transaction(int(lsn), int(ts), int(xid), ordinals)


def split(received: Iterable[PayloadOffsets], source: str) -> Iterator[PayloadBuffer]:
    """The received payloads in batches of at most MESSAGE_BATCH_BYTES, or of one payload."""
    for payloads in received:
        start, end = (np.frombuffer(numbers, np.int64) for numbers in (payloads.start, payloads.end))
        first = 0
        while first < len(end):
            after = max(first + 1, int(np.searchsorted(end, start[first] + MESSAGE_BATCH_BYTES, side="right")))
            yield PayloadBuffer(payloads.buffer, start[first:after], end[first:after], source)
            first = after


def index_messages(payloads: PayloadBuffer, carried: Transaction | None) -> MessageBatch:
    """Index the messages of a batch. carried: the transaction that is open before it."""
    envelope = payloads.u8(payloads.offset)
    keepalive = envelope == KEEPALIVE
    offset = payloads.offset + np.where(keepalive, 0, HEADER)
    kind = payloads.u8(offset)
    _check_frames(payloads, envelope, offset, kind)
    begins = np.flatnonzero(kind == BEGIN)
    transaction = np.cumsum(kind == BEGIN)
    open_after = (carried is not None) + transaction - np.cumsum(kind == COMMIT)
    wanted = _OPEN[kind]
    wrong = (wanted >= 0) & (wanted != open_after)
    if wrong.any():
        raise _out_of_place(payloads, int(offset[wrong][0]))
    open_transaction = carried or Transaction(0, 0, 0, 0)
    head = offset[begins]
    return MessageBatch(
        payloads=payloads,
        start=offset,
        end=payloads.end,
        kind=kind,
        transaction=transaction,
        open_after=open_after,
        begin=np.concatenate(([0], begins)),
        commit_lsn=np.concatenate(([open_transaction.commit_lsn], payloads.i64(head + 1))),
        commit_ts=np.concatenate(([open_transaction.commit_ts], payloads.i64(head + 9) + _EPOCH_US)),
        xid=np.concatenate(([open_transaction.xid], payloads.u32(head + 17))),
    )


def _check_frames(payloads: PayloadBuffer, envelope: U8, offset: I64, kind: U8) -> None:
    """Raises Failure for a payload of unknown type, or shorter than its type's minimum."""
    keepalive = envelope == KEEPALIVE
    length = payloads.end - payloads.offset
    strange = ~keepalive & ((envelope != XLOG_DATA) | (_LENGTH[kind] < 0)) & (length > HEADER)
    if strange.any():
        letter = bytes([kind[strange][0]])
        fix = "Start replication with proto_version 1, without streaming and two_phase"
        raise payloads.protocol_error(f"unknown replication message {letter!r}", int(offset[strange][0]), fix)
    short = np.where(keepalive, length != 18, length < HEADER + np.maximum(_LENGTH[kind], 1))
    if short.any():
        raise payloads.truncated_error(int(payloads.offset[short][0]))


def _out_of_place(payloads: PayloadBuffer, offset: int) -> Exception:
    return payloads.protocol_error(
        "a change or commit outside of a transaction, or a begin inside of one",
        offset,
        "Start the stream again from its stored position",
    )
