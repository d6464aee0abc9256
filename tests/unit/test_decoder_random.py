"""The vectorised decoder compared with a simple, slow one, on random streams split at random places."""

import json
import struct
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.sources.postgres.pgoutput import message_batch
from ingest.sources.postgres.pgoutput.decoder import Decoder
from ingest.sources.postgres.pgoutput.messages import Relation
from ingest.sources.postgres.pgoutput.payload_buffer import PayloadOffsets
from tests.unit.test_decoder import (
    TOAST,
    Catalog,
    Value,
    begin,
    commit,
    delete,
    events,
    insert,
    keepalive,
    logical_message,
    relation,
    truncate,
    update,
)

FIELDS = (
    *("commit_lsn", "xid", "commit_index", "change_lsn", "partition_id"),
    *("op", "row_key", "old_row_key", "columns", "is_partial"),
)
Row = tuple[Any, ...]


# --- The simple decoder ---------------------------------------------------------------------------


@dataclass
class Reference:
    """Decodes one message, and one value, after the other."""

    catalog: Catalog
    rows: list[Row] = field(default_factory=list)
    position: int | None = None
    relations: dict[int, Relation] = field(default_factory=dict)
    transaction: tuple[int, int] | None = None
    ordinal: int = 0

    def feed(self, payload: bytes) -> None:
        if payload[:1] == b"k":
            if self.transaction is None:
                self._reach(*struct.unpack(">Q", payload[1:9]))
            return
        (lsn,) = struct.unpack(">Q", payload[1:9])
        self.data, self.at = payload[25:], 1
        kind = self.data[:1]
        if kind == b"B":
            commit_lsn, _, xid = self._read(">QqI")
            self.transaction, self.ordinal = (commit_lsn, xid), 0
        elif kind == b"C":
            self._reach(self._read(">BQQ")[2])
            self.transaction = None
        elif kind == b"R":
            # Relation messages are covered by the cases in test_decoder.
            probe = Catalog()
            Decoder("shop", 1, probe).feed([PayloadOffsets.from_messages([payload])])
            self.relations[probe.asked[0].oid] = probe.asked[0]
        elif kind == b"T":
            (count, _) = self._read(">IB")
            for oid in self._read(f">{count}I"):
                self._record(lsn, oid, "truncate", None, None, None)
        elif kind in (b"I", b"U", b"D"):
            self._change(lsn, kind)

    def _change(self, lsn: int, kind: bytes) -> None:
        (oid,) = self._read(">I")
        names = self.relations[oid].column_names
        old: dict[str, Value] | None = None
        old_key = None
        (marker,) = self._read(">c")
        if marker != b"N":
            known = self.relations[oid].identity_columns if marker == b"K" else names
            old = {name: v for name, v in self._tuple(names).items() if name in known}
            old_key = self._key(oid, old)
            if kind == b"D":
                return self._record(lsn, oid, "delete", old_key, None, old)
            self._read(">c")
        new = self._tuple(names)
        for name, value in (old or {}).items():
            new.setdefault(name, value)
        key = self._key(oid, new)
        if kind == b"I":
            return self._record(lsn, oid, "insert", key, None, new)
        if old is None:
            return self._record(lsn, oid, "update", key, None, new)
        if old_key == key:
            self._record(lsn, oid, "update", key, None, new)
            self.ordinal += 1
            return None
        self._record(lsn, oid, "delete", old_key, None, old)
        return self._record(lsn, oid, "update", key, old_key, new)

    def _record(self, lsn: int, oid: int, *rest: Any) -> None:
        assert self.transaction
        op, _, _, columns = rest
        is_partial = op == "update" and len(columns) < len(self.relations[oid].columns)
        # In the order of FIELDS.
        self.rows.append((*self.transaction, self.ordinal, lsn, oid, *rest, is_partial))
        self.ordinal += 1

    def _reach(self, position: int) -> None:
        self.position = max(position, self.position or 0)

    def _read(self, form: str) -> tuple[Any, ...]:
        values = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return values

    def _tuple(self, names: tuple[str, ...]) -> dict[str, str | None]:
        """The values in the tuple by name; an unchanged TOAST value is missing."""
        (count,) = self._read(">H")
        values: dict[str, str | None] = {}
        for name in names[:count]:
            (kind,) = self._read(">c")
            if kind == b"n":
                values[name] = None
            if kind == b"t":
                (length,) = self._read(">I")
                values[name] = self._read(f"{length}s")[0].decode()
        return values

    def _key(self, oid: int, values: dict[str, str | None]) -> str:
        key_columns = self.catalog.describe(self.relations[oid]).key_columns
        names = key_columns or sorted(self.relations[oid].column_names)
        return json.dumps([values[n] for n in names], ensure_ascii=False, separators=(",", ":"))


# --- Random streams -------------------------------------------------------------------------------

# Oid: columns, identity, key columns in key order as in the catalog.
TABLES: dict[int, tuple[str, str, str]] = {
    1: ("id* v", "d", "id"),
    2: ("b* x a* y", "i", "a b"),
    3: ("id v w", "f", "id"),
    4: ("v w", "f", ""),
    5: ("only", "n", ""),
    6: ("", "f", ""),
    7: ("id* v w x y z", "d", "id"),
}
TEXT = st.sampled_from(["", "1", "2", "a", 'q"\\', "\n\t", "ünï", "🐢", "x" * 40])
VALUE = st.one_of(TEXT, TEXT, st.none(), st.just(TOAST))


@st.composite
def change(draw: st.DrawFn, columns: str, oid: int, lsn: int) -> bytes:
    """An insert, update or delete that a server could send for a table of these columns."""
    identity = TABLES[oid][1]
    stars = columns.split()
    names = [name.rstrip("*") for name in stars]
    key = TABLES[oid][2].split()
    present = [draw(st.one_of(TEXT, TEXT, st.none())) for _ in names]
    keyed = [(v or "") if n in key else v for n, v in zip(names, present, strict=True)]
    if identity == "n" or draw(st.integers(0, 2)) == 0:
        return insert(oid, *keyed, lsn=lsn)
    before = [draw(TEXT) if n in key else draw(st.one_of(TEXT, st.none())) for n in names]
    if identity == "f":
        if draw(st.booleans()):
            return delete(oid, old=before, lsn=lsn)
        after = [draw(st.sampled_from([b, b, v, TOAST])) for b, v in zip(before, keyed, strict=True)]
        return update(oid, *after, old=before, lsn=lsn)
    only_key = [b if n in key else None for n, b in zip(names, before, strict=True)]
    if draw(st.booleans()):
        return delete(oid, key=only_key, lsn=lsn)
    brought = draw(st.booleans())
    after = [
        draw(st.sampled_from([b, v, TOAST] if brought else [b, v]))
        if n in key
        else draw(st.sampled_from([v, v, TOAST]))
        for n, b, v in zip(names, before, keyed, strict=True)
    ]
    return update(oid, *after, key=only_key if brought else None, lsn=lsn)


@st.composite
def stream(draw: st.DrawFn) -> list[bytes]:
    """Complete transactions with other messages between and within them; the last one may stay open."""
    payloads: list[bytes] = []
    shapes: dict[int, str] = {}
    lsn = 10
    for xid in range(draw(st.integers(0, 4))):
        commit_lsn = lsn + 1000
        payloads += draw(st.lists(st.builds(keepalive, st.integers(0, lsn + 2)), max_size=2))
        payloads.append(begin(commit_lsn, xid))
        for _ in range(draw(st.integers(0, 8))):
            lsn += 1
            oid = draw(st.sampled_from(list(TABLES)))
            if oid not in shapes or draw(st.integers(0, 4)) == 0:
                columns, identity, _ = TABLES[oid]
                shapes[oid] = columns + draw(st.sampled_from(["", " more", " much more"]))
                payloads.append(relation(oid, shapes[oid], identity=identity, name=f"s.t{oid}"))
            match draw(st.integers(0, 9)):
                case 0:
                    oids = draw(st.lists(st.sampled_from(list(shapes)), min_size=1, max_size=3))
                    payloads.append(truncate(*oids, lsn=lsn))
                case 1:
                    payloads.append(logical_message("p", b"c", lsn))
                case 2:
                    payloads.append(keepalive(lsn + 5000))
                case _:
                    payloads.append(draw(change(shapes[oid], oid, lsn)))
        lsn = commit_lsn
        payloads.append(commit(commit_lsn, lsn))
    return payloads[: -draw(st.integers(0, 2)) or None]


@settings(max_examples=100)
@given(payloads=stream(), piece_bytes=st.sampled_from([1, 100, 300, 2**22]), data=st.data())
def test_any_stream_is_decoded_as_by_the_simple_decoder(
    payloads: list[bytes], piece_bytes: int, data: st.DataObject
) -> None:
    catalog = Catalog(**{f"_{oid}": key for oid, (_, _, key) in TABLES.items()})
    reference, decoder = Reference(catalog), Decoder("shop", 1, catalog)
    rows: list[Row] = []
    offset, position, is_open = 0, None, False
    with mock.patch.object(message_batch, "MESSAGE_BATCH_BYTES", piece_bytes):
        while offset < len(payloads):
            step = data.draw(st.integers(1, len(payloads)))
            batch = decoder.feed([PayloadOffsets.from_messages(payloads[offset : offset + step])])
            rows += [tuple(row[name] for name in FIELDS) for row in events(batch)]
            offset, position, is_open = offset + step, batch.position, batch.in_transaction
    for payload in payloads:
        reference.feed(payload)
    assert rows == reference.rows
    assert (position, is_open) == (reference.position, reference.transaction is not None)
