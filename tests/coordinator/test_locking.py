"""Under the lock: who begins and who decides; what a lost lock, and a lost heartbeat, keep from happening."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparkrobust import probe
from sparkrobust.coordinator.coordination import Coordination, coordination_of
from sparkrobust.coordinator.create import make_table
from sparkrobust.coordinator.facts import of_locks
from sparkrobust.coordinator.heartbeat import Heartbeat, living, seconds_since
from sparkrobust.coordinator.leftovers import control_folders
from sparkrobust.coordinator.recovery import Fate, recover
from sparkrobust.coordinator.rollback import roll_back, roll_back_failed_writes
from sparkrobust.coordinator.table import HudiTable
from sparkrobust.coordinator.times import next_time
from sparkrobust.coordinator.transaction import Transaction
from sparkrobust.core.decision import Abort
from sparkrobust.core.heartbeat import Pulse
from sparkrobust.core.instant import Action, Instant, InstantTime, State
from sparkrobust.core.names import HEARTBEATS, LOCK_RECORD, TEMP, heartbeat_file, instant_file
from sparkrobust.errors import (
    ConflictError,
    FencedError,
    HeartbeatLostError,
    InvalidOptionError,
    LockError,
    UnavailableError,
)
from sparkrobust.options import FailedWritesPolicy, parse
from sparkrobust.probe import Point
from sparkrobust.storage.contract import FileInfo, Storage
from sparkrobust.storage.locks import FileSystemLock, InProcessLock, TableLock, time_of
from sparkrobust.storage.memory import MemoryStorage
from sparkrobust.storage.storage_lock import StorageLock
from sparkrobust.storage.zookeeper_lock import ZooKeeperLock
from sparkrobust.world import Clock, Hands, Ids
from tests.coordinator.writes import TestClock, begun, commit, data_files, leftovers, stage, stopped, terms
from tests.moments import at

LOCK = ".hoodie/lock"


each_kind = pytest.mark.parametrize("kind", [FileSystemLock, StorageLock])
"""Of locks that are objects in the table."""


def sharing(
    table: HudiTable,
    *,
    expire_seconds: float | None = None,
    kind: type[FileSystemLock | StorageLock] = FileSystemLock,
) -> HudiTable:
    """The same table, whose lock is a file."""
    lock: TableLock
    if kind is StorageLock:
        lock = StorageLock(table.storage, validity_seconds=expire_seconds or 1e6, clock=table.clock)
    else:
        lock = FileSystemLock(table.storage, LOCK, expire_seconds=expire_seconds, clock=table.clock)
    coordination = Coordination(lock=lock, lock_seconds=0)
    return HudiTable.open(table.storage, table.clock, table.ids, coordination=coordination)


@each_kind
def test_a_write_begins_and_ends_under_the_lock_and_its_tasks_run_without(
    table: HudiTable, kind: type[FileSystemLock | StorageLock]
) -> None:
    table = sharing(table, kind=kind)
    held: dict[Point, bool] = {}

    def look(point: Point, facts: dict[str, Any]) -> None:
        held[point] = table.coordination.lock.holder() is not None

    with probe.listening(look):
        commit(table)
    locked = {Point.GATE_OPENED, Point.REQUESTED, Point.COMMIT_STAGED, Point.DECIDED}
    locked |= {Point.PARTITIONS_MADE, Point.DATA_PUBLISHED, Point.COMMIT_PUBLISHED}
    assert {point for point, found in held.items() if found} == locked
    assert table.coordination.lock.holder() is None and table.storage.stat(LOCK) is None


@each_kind
def test_a_write_that_does_not_get_the_lock_leaves_nothing_and_says_who_has_it(
    table: HudiTable, kind: type[FileSystemLock | StorageLock]
) -> None:
    table = sharing(table, kind=kind)
    grip = table.coordination.lock.acquire("somebody", seconds=0)
    with pytest.raises(LockError, match="somebody"):
        begun(table)
    assert leftovers(table.storage) == [] and not table.timeline.instants
    grip.release()
    transaction = begun(table)
    stage(table, transaction)
    markers = transaction.finalize(1)
    grip = table.coordination.lock.acquire("somebody", seconds=0)
    with pytest.raises(LockError, match="somebody") as refused:
        transaction.commit(markers)
    assert refused.value.outcome == "Retryable"
    # Nobody decided anything, so the same driver may try again.
    grip.release()
    transaction.commit(markers)
    assert len(data_files(table.storage)) == 1


class Cut:
    """A store at one of whose calls, before it or after it, Ctrl-C comes."""

    def __init__(self, inner: Storage, at: int, *, before: bool) -> None:
        self._inner, self._left, self._before = inner, at, before

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found):
            return found

        def called(*given: Any, **named: Any) -> Any:
            self._left -= 1
            if self._before and self._left == 0:
                raise KeyboardInterrupt
            answer = found(*given, **named)
            if not self._before and self._left == 0:
                raise KeyboardInterrupt
            return answer

        return called

    @property
    def came(self) -> bool:
        return self._left <= 0


@pytest.mark.parametrize("before", [True, False])
@each_kind
def test_a_write_that_ctrl_c_stops_at_any_call_while_it_begins_leaves_no_lock_and_no_trace(
    in_memory: HudiTable, kind: type[FileSystemLock | StorageLock], before: bool
) -> None:
    calls, came = 0, True
    while came:
        calls += 1
        table = sharing(in_memory, kind=kind)
        cut: Any = Cut(table.storage, calls, before=before)
        lock: Any = table.coordination.lock
        table.storage = lock.storage = cut
        transaction = Transaction(table, terms())
        with contextlib.suppress(KeyboardInterrupt):
            transaction.begin(slots=1)
        came = cut.came
        table.storage = lock.storage = in_memory.storage
        assert lock.holder() is None
        assert transaction.abort("it was stopped") is True
        roll_back_failed_writes(sharing(in_memory, kind=kind))
        assert lock.holder() is None and leftovers(in_memory.storage) == []
    assert calls > 10


@each_kind
def test_a_write_that_could_not_give_the_lock_back_when_it_had_begun_commits_all_the_same(
    in_memory: HudiTable, kind: type[FileSystemLock | StorageLock]
) -> None:
    table = sharing(in_memory, kind=kind)
    lost = "delete" if kind is FileSystemLock else "replace_if_unchanged"
    real = getattr(table.storage, lost)

    def away(path: str, *rest: Any) -> Any:
        if path in (LOCK, LOCK_RECORD):
            raise UnavailableError("no answer")
        return real(path, *rest)

    setattr(table.storage, lost, away)
    transaction = begun(table)
    setattr(table.storage, lost, real)
    assert table.coordination.lock.holder() is not None
    stage(table, transaction)
    transaction.commit(transaction.finalize(1))
    assert table.coordination.lock.holder() is None


@each_kind
def test_a_lock_that_cannot_be_looked_at_is_told_as_a_problem_and_not_as_free(
    in_memory: HudiTable, kind: type[FileSystemLock | StorageLock]
) -> None:
    table = sharing(in_memory, kind=kind)

    def away(path: str) -> Any:
        raise UnavailableError("no answer")

    table.storage.read = table.storage.read_versioned = away  # type: ignore[method-assign]
    told = of_locks(table)
    assert [one["problem"] for one in told] == ["no answer"] * 2 and not any("holder" in one for one in told)


def test_a_driver_whose_lock_expired_before_it_decided_decides_nothing(table: HudiTable) -> None:
    table = sharing(table, expire_seconds=60)
    transaction = begun(table)
    stage(table, transaction)
    markers = transaction.finalize(1)

    def thief() -> None:
        table.storage.put(LOCK, b"a thief's")

    with probe.listening(at(Point.COMMIT_STAGED, thief)), pytest.raises(FencedError, match="lock"):
        transaction.commit(markers)
    assert table.storage.read(LOCK) == b"a thief's"
    table.storage.delete(LOCK)
    assert transaction.abort("its lock was lost") is True
    assert data_files(table.storage) == [] and leftovers(table.storage) == []


@pytest.fixture
def in_memory(tmp_path: Path) -> HudiTable:
    """A table whose store's time is the test's."""
    clock = TestClock()
    clock.elapsed = lambda: clock.ms / 1000  # type: ignore[method-assign]
    options = {"hoodie.table.name": "t", "hoodie.datasource.write.recordkey.field": "id"}
    return make_table(MemoryStorage(str(tmp_path), clock=clock), parse(options), clock, Ids())[0]


@each_kind
def test_who_takes_the_lock_of_a_sleeper_ends_its_write_first(
    in_memory: HudiTable, kind: type[FileSystemLock | StorageLock]
) -> None:
    first = sharing(in_memory, expire_seconds=60, kind=kind)
    asleep = begun(first)
    stage(first, asleep)
    markers = asleep.finalize(1)
    clock = in_memory.clock
    second = sharing(in_memory, expire_seconds=60, kind=kind)
    ended = []

    def others_go_on() -> None:
        clock.sleep(100)
        other = begun(second)
        ended.append(asleep._control.decision())
        stage(second, other)
        other.commit(other.finalize(1))

    with probe.listening(at(Point.COMMIT_STAGED, others_go_on)), pytest.raises(FencedError):
        asleep.commit(markers)
    assert isinstance(ended[0], Abort) and "lock" in ended[0].reason
    assert asleep.abort("fenced") is True
    assert len(data_files(in_memory.storage)) == 1


def test_who_takes_the_lock_of_a_driver_that_died_after_its_decision_finishes_its_write(
    in_memory: HudiTable,
) -> None:
    first = sharing(in_memory, expire_seconds=60)
    decided = stopped(first, "decided")
    # The driver died where it stood, and gave nothing back.
    first.storage.put(LOCK, f'{{"owner": "{decided.time}-{decided.folder.nonce}"}}'.encode())
    in_memory.clock.sleep(100)
    second = sharing(in_memory, expire_seconds=60)
    transaction = begun(second)
    second.reload()
    assert [i.time for i in second.timeline.completed_writes] == [decided.time]
    transaction.abort("enough seen")


def test_who_commits_first_finishes_what_others_have_decided(table: HudiTable) -> None:
    table = sharing(table)
    first = commit(table)
    mine = begun(table)
    stage(table, mine)
    other = stopped(sharing(table), "decided")
    mine.commit(mine.finalize(1))
    fresh = sharing(table)
    assert [i.time for i in fresh.timeline.completed_writes] == sorted([first.time, mine.time, other.time])
    assert len(fresh.base_files()) == 3


def test_a_write_that_the_timeline_does_not_reach_back_to_is_not_committed_since_its_files_would_show_early(
    table: HudiTable,
) -> None:
    early = begun(table)
    stage(table, early)
    table.reload()
    commit(HudiTable.open(table.storage, table.clock, table.ids))
    with pytest.raises(ConflictError, match="begins after") as refused:
        early.commit(early.finalize(1))
    assert refused.value.outcome == "Retryable"
    assert early.abort("to be written again") is True
    assert len(data_files(table.storage)) == 1


def test_a_write_whose_driver_slept_before_its_requested_file_takes_a_later_instant(
    table: HudiTable,
) -> None:
    table = sharing(table)
    early = begun(table)  # only to know an instant
    early.abort("")
    other = HudiTable.open(table.storage, table.clock, table.ids)  # shares no lock
    slept = []

    def others_go_on() -> None:
        slept.append(commit(other).time)

    with probe.listening(at(Point.GATE_OPENED, others_go_on)):
        late = begun(table)
    assert late.time > slept[0]
    assert [folder.instant for folder in control_folders(table.storage)] == [late.time]
    stage(table, late)
    late.commit(late.finalize(1))
    late.clean_up()
    assert roll_back_failed_writes(sharing(table)) == []
    assert leftovers(table.storage) == []


def test_times_taken_under_a_shared_lock_are_over_on_every_clock_before_the_next_is_taken(
    in_memory: HudiTable,
) -> None:
    clock = in_memory.clock
    table = sharing(in_memory)
    before = clock.now_ms()
    begun(table)
    assert clock.now_ms() - before >= table.coordination.skew_ms
    before = clock.now_ms()
    begun(in_memory)
    assert clock.now_ms() == before


# -- heartbeats ------------------------------------------------------------------------------------------


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


def test_a_lock_in_zookeeper_is_called_as_its_table_unless_the_options_say_otherwise(
    in_memory: HudiTable,
) -> None:
    given = {
        "hoodie.write.lock.provider": "ZookeeperBasedLockProvider",
        "hoodie.write.lock.zookeeper.url": "b, a:7",
        "hoodie.write.lock.zookeeper.base_path": "/hudi/",
    }

    def name(storage: Storage, **more: str) -> str:
        return str(coordination_of(parse(given | more), storage, Clock(), Ids()).lock)

    storage, key = in_memory.storage, "hoodie.write.lock.zookeeper.lock_key"
    assert name(storage) == "zookeeper://a:7,b:2181/hudi/t"
    assert name(storage, **{"hoodie.table.name": "u"}) == "zookeeper://a:7,b:2181/hudi/u"
    assert name(storage, **{"hoodie.table.name": "u", key: "v"}) == "zookeeper://a:7,b:2181/hudi/v"
    with pytest.raises(InvalidOptionError, match="lock_key: the lock in ZooKeeper needs it"):
        name(MemoryStorage("no table"))


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


# -- options ---------------------------------------------------------------------------------------------


def test_the_lock_and_the_pulse_are_what_hudis_own_options_say(storage: Storage, tmp_path: Any) -> None:
    def of(**options: str) -> Coordination:
        given = {f"hoodie.{key.replace('__', '.')}": value for key, value in options.items()}
        return coordination_of(parse(given), storage, Clock(), Ids())

    plain = of()
    assert isinstance(plain.lock, InProcessLock) and not plain.lock.shared
    assert (plain.lock_seconds, plain.skew_ms, plain.pulse) == (60, 200, Pulse())
    provider = "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider"
    shared = of(
        write__lock__provider=provider,
        write__lock__wait_time_ms="1500",
        client__heartbeat__interval_in_ms="5000",
        client__heartbeat__tolerable__misses="3",
        time__generator__max_expected_clock_skew_ms="10",
    )
    assert isinstance(shared.lock, FileSystemLock)
    assert (shared.lock.path, shared.lock.expire_seconds) == (LOCK, None)
    assert (shared.lock_seconds, shared.skew_ms) == (1.5, 10)
    assert shared.pulse == Pulse(interval_ms=5000, tolerable_misses=3)
    folder = str(tmp_path / "locks")
    elsewhere = of(
        write__lock__provider="FileSystemBasedLockProvider",
        write__lock__filesystem__path=folder,
        write__lock__filesystem__expire="5",
    )
    assert isinstance(elsewhere.lock, FileSystemLock) and elsewhere.lock.expire_seconds == 300
    grip = elsewhere.lock.acquire("me", seconds=0)
    assert (tmp_path / "locks" / "lock").exists()
    grip.release()
    renewed = of(
        write__lock__provider=provider.replace("FileSystemBased", "StorageBased"),
        write__lock__storage__validity__timeout__secs="50",
        write__lock__storage__renew__interval__secs="5",
    )
    assert isinstance(renewed.lock, StorageLock) and renewed.lock.shared
    assert (renewed.lock.validity_seconds, renewed.lock.renew_seconds) == (50, 5)
    in_zookeeper = of(
        table__name="t",
        write__lock__provider="ZookeeperBasedLockProvider",
        write__lock__zookeeper__url="a, b:7",
        write__lock__zookeeper__port="5",
        write__lock__zookeeper__base_path="/hudi/",
        write__lock__zookeeper__session_timeout_ms="3000",
    )
    assert isinstance(in_zookeeper.lock, ZooKeeperLock)
    assert (in_zookeeper.lock.hosts, in_zookeeper.lock.path) == ("a:5,b:7", "/hudi/t")
    assert (in_zookeeper.lock.session_seconds, in_zookeeper.lock.connect_seconds) == (3, 15)


def test_two_drivers_that_plan_rollbacks_in_the_same_millisecond_get_instants_of_their_own(
    table: HudiTable,
) -> None:
    failed = stopped(table, "staged")
    table.reload()
    (pending,) = table.timeline.pending
    taken = next_time(table.clock, table.config, table.timeline.newest_time)
    theirs = Instant(time=taken, action=Action.ROLLBACK, state=State.REQUESTED)
    table.storage.put_if_absent(instant_file(theirs), b"the plan of another driver")
    assert roll_back(table, pending, "its driver is gone") is True
    done = [i.time for i in table.timeline.instants if i.action is Action.ROLLBACK and not i.pending]
    assert len(done) == 1 and done[0] > taken
    assert table.storage.read(instant_file(theirs)) == b"the plan of another driver"
    assert data_files(table.storage) == [] and failed.time not in {i.time for i in table.timeline.instants}
