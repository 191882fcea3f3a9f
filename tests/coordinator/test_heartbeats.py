"""A heartbeat says that a write is alive: who beats, who looks, and what a lost one keeps from happening."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from sparkrobust import probe
from sparkrobust.coordinator.heartbeat import Heartbeat, living, seconds_since
from sparkrobust.coordinator.recovery import Fate, recover
from sparkrobust.coordinator.rollback import roll_back_failed_writes
from sparkrobust.coordinator.table import HudiTable
from sparkrobust.core.heartbeat import Pulse
from sparkrobust.core.instant import InstantTime
from sparkrobust.core.names import HEARTBEATS, TEMP, heartbeat_file
from sparkrobust.errors import (
    HeartbeatLostError,
    UnavailableError,
)
from sparkrobust.options import FailedWritesPolicy
from sparkrobust.probe import Point
from sparkrobust.storage.contract import FileInfo
from sparkrobust.storage.locks import time_of
from sparkrobust.world import Clock, Hands
from tests.coordinator.writes import begun, commit, data_files, leftovers, stage


class Beats(Hands):
    """Beats when the test says so."""

    def __init__(self) -> None:
        self.beat: Callable[[], object] = lambda: None
        self.seconds = 0.0
        self.stopped = False

    def every(self, seconds: float, work: Callable[[], object]) -> Callable[[], None]:
        self.seconds, self.beat = seconds, work
        return lambda: setattr(self, "stopped", True)


def test_a_write_has_a_heartbeat_before_its_requested_file_and_none_when_it_has_ended(
    table: HudiTable,
) -> None:
    table.hands = beats = Beats()
    seen: list[bool] = []

    def look(point: Point, facts: dict[str, Any]) -> None:
        if point in (Point.GATE_OPENED, Point.COMMIT_PUBLISHED):
            seen.append(table.storage.stat(heartbeat_file(facts["instant"])) is not None)

    with probe.listening(look):
        commit(table)
    assert seen == [True, True] and beats.stopped and beats.seconds == 60
    assert list(table.storage.names(HEARTBEATS)) == []
    failed = begun(table)
    failed.abort("it failed")
    assert list(table.storage.names(HEARTBEATS)) == []


def test_a_driver_whose_heartbeat_could_not_be_renewed_gives_its_write_up_before_it_decides(
    in_memory: HudiTable,
) -> None:
    table, clock = in_memory, in_memory.clock
    table.hands = beats = Beats()
    transaction = begun(table)
    stage(table, transaction)
    markers = transaction.finalize(1)
    real = table.storage.put
    tries = []

    def away(path: str, data: bytes) -> None:
        tries.append(path)
        raise UnavailableError("the store is away")

    table.storage.put = away  # type: ignore[method-assign]
    for _ in range(2):
        clock.sleep(70)
        beats.beat()
    assert len(tries) > 2, "each beat is tried more than once"
    table.storage.put = real  # type: ignore[method-assign]
    with pytest.raises(HeartbeatLostError, match="could not be renewed"):
        transaction.commit(markers)
    assert transaction.abort("its heartbeat was lost") is True
    assert data_files(table.storage) == [] and leftovers(table.storage) == []


def test_a_heartbeat_that_is_renewed_in_time_lets_a_write_take_as_long_as_it_needs(
    in_memory: HudiTable,
) -> None:
    table, clock = in_memory, in_memory.clock
    table.hands = beats = Beats()
    transaction = begun(table)
    stage(table, transaction)
    for _ in range(50):
        clock.sleep(60)
        beats.beat()
        assert seconds_since(table, transaction.time) == 0
    transaction.commit(transaction.finalize(1))


def test_a_live_write_is_left_alone_by_recover_until_its_heartbeat_expires(in_memory: HudiTable) -> None:
    table, clock = in_memory, in_memory.clock
    table.hands = Beats()
    living = begun(table)
    stage(table, living)
    other = HudiTable.open(table.storage, clock, table.ids)
    assert [(found.instant, found.fate) for found in recover(other)] == [(living.time, Fate.ALIVE)]
    clock.sleep(120)
    assert [found.fate for found in recover(other)] == [Fate.ALIVE]
    clock.sleep(1)
    assert [found.fate for found in recover(other)] == [Fate.COMMITTED]
    assert leftovers(table.storage) == []


def test_a_heartbeat_that_is_renewed_while_who_looks_at_it_sleeps_is_not_taken_for_an_expired_one(
    in_memory: HudiTable,
) -> None:
    table, clock = in_memory, in_memory.clock
    table.hands = beats = Beats()
    alive = begun(table)
    put = table.storage.put

    def asleep(path: str, data: bytes) -> None:
        if "/now-" in path:
            clock.sleep(1000)
            beats.beat()
        put(path, data)

    table.storage.put = asleep  # type: ignore[method-assign]
    other = HudiTable.open(table.storage, clock, table.ids)
    assert living(other) == {alive.time}
    assert seconds_since(other, alive.time) == 0


def test_the_stores_time_is_told_though_another_writer_sweeps_away_the_file_that_tells_it(
    in_memory: HudiTable,
) -> None:
    storage, swept = in_memory.storage, list[str]()
    stat = storage.stat

    def after_others(path: str) -> FileInfo | None:
        if not swept:
            swept.append(path)
            roll_back_failed_writes(HudiTable.open(storage, in_memory.clock, in_memory.ids))
        return stat(path)

    storage.stat = after_others  # type: ignore[method-assign]
    assert time_of(storage, in_memory.ids) == in_memory.clock.now_ms()
    assert "/now-" in swept[0]


def test_a_live_write_is_ended_by_recover_where_the_caller_knows_that_it_is_dead(table: HudiTable) -> None:
    killed = begun(table)
    stage(table, killed)
    other = HudiTable.open(table.storage, table.clock, table.ids)
    assert [found.fate for found in recover(other)] == [Fate.ALIVE]
    assert [found.fate for found in recover(other, even_alive=True)] == [Fate.COMMITTED]


def test_a_heartbeat_that_its_dead_writer_left_goes_with_the_next_write(table: HudiTable) -> None:
    table.storage.make_folder(HEARTBEATS)
    table.storage.put(heartbeat_file("20240101000000000"), b"")
    living = begun(table)
    table.reload()
    roll_back_failed_writes(HudiTable.open(table.storage, table.clock, table.ids))
    assert list(table.storage.names(HEARTBEATS)) == []
    assert living.abort("it was rolled back") is True


def test_a_file_or_folder_whose_name_is_no_instant_is_in_nobodys_way(table: HudiTable) -> None:
    living = begun(table)
    table.storage.make_folder(HEARTBEATS)
    for name in ("²", "x"):
        table.storage.put(f"{HEARTBEATS}/{name}", b"")
        table.storage.make_folder(f"{TEMP}/{name}")
    lazy = replace(table.coordination, failed_writes=FailedWritesPolicy.LAZY)
    other = HudiTable.open(table.storage, table.clock, table.ids, coordination=lazy)
    assert roll_back_failed_writes(other) == []
    assert living.abort("seen enough") is True
    assert sorted(table.storage.names(HEARTBEATS)) == ["x", "²"]


def test_the_thread_of_a_heartbeat_beats_until_it_is_stopped(table: HudiTable) -> None:
    coordination = replace(table.coordination, pulse=Pulse(interval_ms=1))
    table.coordination = coordination
    table.clock = Clock()
    beats: list[int] = []
    enough = threading.Event()
    real = table.storage.put

    def put(path: str, data: bytes) -> None:
        real(path, data)
        beats.append(1)
        if len(beats) > 3:
            enough.set()

    table.storage.put = put  # type: ignore[method-assign]
    heartbeat = Heartbeat(table, InstantTime("20240101000000000"))
    heartbeat.start()
    assert enough.wait(60)
    heartbeat.stop()
    heartbeat.refuse_if_lost()  # there is none any more that could be lost


def test_a_heartbeat_that_is_interrupted_when_its_thread_has_begun_beats_no_more(
    table: HudiTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []
    start = threading.Thread.start

    def cut(thread: threading.Thread) -> None:
        threads.append(thread)
        start(thread)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", cut)
        with pytest.raises(KeyboardInterrupt):
            Heartbeat(table, InstantTime("20240101000000000")).start()
    threads[0].join(60)
    assert not threads[0].is_alive()
