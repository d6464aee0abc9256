"""Whether a stream may continue: the state of the server, and the states that are refused (design rules W6, W7)."""

from typing import Any

import pytest

from ingest.common.errors import Failure, Unavailable
from ingest.positions.position import Position, parse_lsn
from ingest.sources.postgres.slots import replication_slots, slot_continuity
from ingest.sources.postgres.slots.replication_slots import ServerIdentity

# The stream has committed from 0/100 up to 0/300 on timeline 2.
STORED = Position("shop", 1, "slot", "sys", 2, 0x100, 0x300)


class Server:
    """The state of a server. fork: the LSN where timeline 3 left timeline 2."""

    system = ServerIdentity("sys", 2)
    now = "0/500"
    is_standby = False
    fork = "0/400"

    def check(self, monkeypatch: pytest.MonkeyPatch) -> None:
        history = f"1\t0/80\tno recovery target specified\n2\t{self.fork}\tno recovery target specified\n"
        monkeypatch.setattr(replication_slots, "identify_server", lambda _: self.system)
        monkeypatch.setattr(replication_slots, "read_current_lsn", lambda _: parse_lsn(self.now))
        monkeypatch.setattr(replication_slots, "is_in_recovery", lambda _: self.is_standby)
        monkeypatch.setattr(slot_continuity, "run_command", lambda *_: [{"content": history}])
        unused: Any = None
        assert slot_continuity.check_log(unused, unused, STORED) == self.system


@pytest.fixture
def server() -> Server:
    return Server()


def test_the_stored_timeline_is_continued(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.check(monkeypatch)
    server.now = "0/300"
    server.check(monkeypatch)


def test_another_cluster_is_refused(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.system = ServerIdentity("other", 2)
    with pytest.raises(Failure, match="the DSN leads to another database cluster"):
        server.check(monkeypatch)


def test_a_restored_server_is_refused(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.now = "0/2FF"
    with pytest.raises(Failure, match="log is at 0/2FF, behind the stored position"):
        server.check(monkeypatch)


def test_a_standby_that_is_behind_is_waited_for(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.now, server.is_standby = "0/2FF", True
    with pytest.raises(Unavailable, match="a standby at 0/2FF, behind the stored position"):
        server.check(monkeypatch)


@pytest.mark.parametrize(("fork", "is_followed"), [("0/400", True), ("0/300", True), ("0/2FF", False)])
def test_a_timeline_forked_at_or_after_our_position_is_followed(
    server: Server, monkeypatch: pytest.MonkeyPatch, fork: str, is_followed: bool
) -> None:
    server.system, server.fork = ServerIdentity("sys", 3), fork
    if is_followed:
        server.check(monkeypatch)
        return
    with pytest.raises(Failure, match="timeline 3 of the cluster forked at 0/2FF, before the stored position"):
        server.check(monkeypatch)


@pytest.mark.parametrize(("confirmed", "is_lost"), [("0/200", False), ("0/300", False), ("0/301", True)])
def test_a_slot_advanced_past_the_stored_position_is_refused(
    monkeypatch: pytest.MonkeyPatch, confirmed: str, is_lost: bool
) -> None:
    monkeypatch.setattr(replication_slots, "check_writer_slot", lambda *_: None)
    unused: Any = None
    slot_row = {"confirmed_flush_lsn": confirmed, "wal_status": "reserved"}
    if not is_lost:
        slot_continuity.check_slot(unused, STORED, slot_row)
        return
    with pytest.raises(Failure, match="another client has advanced the slot to 0/301"):
        slot_continuity.check_slot(unused, STORED, slot_row)
