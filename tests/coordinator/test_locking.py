"""Under the lock: who begins and who decides; what a lost lock, and a lost heartbeat, keep from happening."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from sparkrobust import probe
from sparkrobust.coordinator.coordination import Coordination
from sparkrobust.coordinator.facts import of_locks
from sparkrobust.coordinator.leftovers import control_folders
from sparkrobust.coordinator.rollback import roll_back, roll_back_failed_writes
from sparkrobust.coordinator.table import HudiTable
from sparkrobust.coordinator.times import next_time
from sparkrobust.coordinator.transaction import Transaction
from sparkrobust.core.decision import Abort
from sparkrobust.core.instant import Action, Instant, State
from sparkrobust.core.names import LOCK_RECORD, instant_file
from sparkrobust.errors import (
    ConflictError,
    FencedError,
    LockError,
    UnavailableError,
)
from sparkrobust.probe import Point
from sparkrobust.storage.contract import Storage
from sparkrobust.storage.locks import FileSystemLock, TableLock
from sparkrobust.storage.storage_lock import StorageLock
from tests.coordinator.writes import begun, commit, data_files, leftovers, stage, stopped, terms
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

    def away(path: str, **how: Any) -> Any:
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
