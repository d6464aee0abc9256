"""A bounded piece of a pgoutput stream, taken apart by message: types, and the transaction of each.

Only the frame is read here (Begin, Commit, keepalives); a transaction may be open before and after
it. Anything that is not protocol version 1 in its right order raises `Failure`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from ingest.sources.postgres.pgoutput.payload_buffer import HEADER, I64, U8, Payloads, Wire

# Small enough for the processor's cache (positions jump through all of a piece once per column),
# and for 32-bit offsets whatever is in it; a larger message is a piece of its own.
PIECE_BYTES = 2 * 2**20
_EPOCH_US = 946_684_800_000_000  # 2000-01-01

KEEPALIVE, XLOG_DATA = b"kw"
BEGIN, COMMIT, RELATION, MESSAGE, TRUNCATE = b"BCRMT"
ROWS = b"IUD"
_END_LSN = 10  # in a Commit: type, flags, commit_lsn, then this one

# The fewest bytes of a message, its type included. Y (type) and O (origin) say nothing that is of
# use here.
_SHORTEST = {"B": 21, "C": 26, "R": 10, "Y": 7, "O": 10, "M": 15, "T": 6, "I": 8, "U": 8, "D": 8}
_LENGTH = np.full(256, -1, np.int64)
_LENGTH[[ord(letter) for letter in _SHORTEST]] = list(_SHORTEST.values())
_OPEN = np.full(256, -1, np.int64)  # how many transactions are open after it; -1: either
_OPEN[list(b"BTIUD")] = 1
_OPEN[COMMIT] = 0


@dataclass(frozen=True)
class Transaction:
    """A transaction that is open; ordinals: how many it has given out. commit_ts: us since 1970, UTC."""

    commit_lsn: int
    commit_ts: int
    xid: int
    ordinals: int


@dataclass(frozen=True)
class Piece:
    """Messages, by number.

    at: where they begin; end: where they end; kind: the type (keepalives: `k`). transaction: number
    of the transaction they are in (or follow), 0 for the one carried over. By that number: begin
    (its first message), commit_lsn, commit_ts, xid. open_after: is one open, for each message.
    """

    wire: Wire
    at: I64
    end: I64
    kind: U8
    transaction: I64
    open_after: I64
    begin: I64
    commit_lsn: I64
    commit_ts: I64
    xid: I64

    def where(self, *kinds: int) -> I64:
        """The numbers of the messages of these types."""
        found = np.zeros(len(self.kind), np.bool_)
        for kind in kinds:
            found |= self.kind == kind
        return np.flatnonzero(found)

    def change_lsn(self, messages: I64) -> I64:
        """Where in the log the changes of these messages stand."""
        return self.wire.i64(self.wire.offset[messages] + 1)

    def positions(self) -> I64:
        """The positions this proves: ends of transactions, and of keepalives outside of any."""
        idle = np.flatnonzero((self.kind == KEEPALIVE) & (self.open_after == 0))
        ends = self.wire.i64(self.at[self.where(COMMIT)] + _END_LSN)
        return np.concatenate((ends, self.wire.i64(self.wire.offset[idle] + 1)))

    def reply_requested(self) -> bool:
        """Whether a keepalive asks for a status at once."""
        return bool(self.wire.u8(self.wire.offset[self.where(KEEPALIVE)] + 17).any())

    def last(self, ordinals: int) -> Transaction | None:
        """The transaction that is open at the end, if one is, with `ordinals` given out by then."""
        if not len(self.kind) or not self.open_after[-1]:
            return None
        number = int(self.transaction[-1])
        lsn, ts, xid = self.commit_lsn[number], self.commit_ts[number], self.xid[number]
        return Transaction(int(lsn), int(ts), int(xid), ordinals)


def cut(received: Iterable[Payloads], source: str) -> Iterator[Wire]:
    """What was received in pieces of at most PIECE_BYTES, or of one payload."""
    for payloads in received:
        start, end = (np.frombuffer(numbers, np.int64) for numbers in (payloads.start, payloads.end))
        first = 0
        while first < len(end):
            after = max(first + 1, int(np.searchsorted(end, start[first] + PIECE_BYTES, side="right")))
            yield Wire(payloads.buffer, start[first:after], end[first:after], source)
            first = after


def scan(wire: Wire, carried: Transaction | None) -> Piece:
    """Take a wire apart; `carried`: the transaction that is open before it."""
    envelope = wire.u8(wire.offset)
    keepalive = envelope == KEEPALIVE
    at = wire.offset + np.where(keepalive, 0, HEADER)
    kind = wire.u8(at)
    _check_frames(wire, envelope, at, kind)
    begins = np.flatnonzero(kind == BEGIN)
    transaction = np.cumsum(kind == BEGIN)
    open_after = (carried is not None) + transaction - np.cumsum(kind == COMMIT)
    wanted = _OPEN[kind]
    wrong = (wanted >= 0) & (wanted != open_after)
    if wrong.any():
        raise _out_of_place(wire, int(at[wrong][0]))
    known = carried or Transaction(0, 0, 0, 0)
    head = at[begins]
    return Piece(
        wire=wire,
        at=at,
        end=wire.end,
        kind=kind,
        transaction=transaction,
        open_after=open_after,
        begin=np.concatenate(([0], begins)),
        commit_lsn=np.concatenate(([known.commit_lsn], wire.i64(head + 1))),
        commit_ts=np.concatenate(([known.commit_ts], wire.i64(head + 9) + _EPOCH_US)),
        xid=np.concatenate(([known.xid], wire.u32(head + 17))),
    )


def _check_frames(wire: Wire, envelope: U8, at: I64, kind: U8) -> None:
    """Every payload has a known frame and type, and is as long as that is at least."""
    keepalive = envelope == KEEPALIVE
    length = wire.end - wire.offset
    strange = ~keepalive & ((envelope != XLOG_DATA) | (_LENGTH[kind] < 0)) & (length > HEADER)
    if strange.any():
        letter = bytes([kind[strange][0]])
        fix = "Start replication with proto_version 1, without streaming and two_phase"
        raise wire.failure(f"unknown replication message {letter!r}", int(at[strange][0]), fix)
    short = np.where(keepalive, length != 18, length < HEADER + np.maximum(_LENGTH[kind], 1))
    if short.any():
        raise wire.cut_short(int(wire.offset[short][0]))


def _out_of_place(wire: Wire, at: int) -> Exception:
    return wire.failure(
        "a change or commit outside of a transaction, or a begin inside of one",
        at,
        "Start the stream again from its stored position",
    )
