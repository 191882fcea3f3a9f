"""Writes whose drivers are gone: committed from their markers where all is there, rolled back where not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sparkrobust import probe
from sparkrobust.coordinator.control import Control
from sparkrobust.coordinator.recovery import Fate, earlier_result, recover, roll_back_as_a_write_would
from sparkrobust.coordinator.rollback import roll_back_failed_writes
from sparkrobust.coordinator.table import HudiTable
from sparkrobust.coordinator.transaction import Transaction
from sparkrobust.coordinator.write_ids import WrittenEarlier
from sparkrobust.core.decision import Commit
from sparkrobust.core.instant import Action
from sparkrobust.core.markers import Fingerprint
from sparkrobust.core.names import NONCE, WRITE_ID
from sparkrobust.errors import (
    CommitUnknownError,
    FencedError,
    LockError,
    PermissionDeniedError,
    RobustWriteError,
    StorageFullError,
    UnavailableError,
)
from sparkrobust.options import FailedWritesPolicy
from sparkrobust.probe import Point
from sparkrobust.storage.contract import Storage
from tests.coordinator.writers import LOCK, writer
from tests.coordinator.writes import (
    STOPS,
    Stop,
    StopsAt,
    begun,
    commit,
    data_files,
    dead,
    leftovers,
    opened,
    stage,
    stopped,
    terms,
)
from tests.moments import at


@pytest.mark.parametrize("stop", STOPS)
def test_a_write_is_recovered_without_being_written_again_once_all_its_slots_are_done(
    table: HudiTable, stop: str
) -> None:
    commit(table)
    before = data_files(table.storage)
    failed = stopped(table, stop)
    fresh = opened(table)
    (found,) = recover(fresh)
    committed = stop != "begun"
    assert (found.instant, found.fate) == (failed.time, Fate.COMMITTED if committed else Fate.ROLLED_BACK)
    assert len(data_files(table.storage)) == len(before) + committed
    assert leftovers(table.storage) == []
    fresh.reload()
    done = fresh.timeline.find(failed.time, Action.COMMIT)
    assert (done is not None) is committed
    if done is not None:
        assert fresh.commit(done).extra_metadata[NONCE] == failed.folder.nonce
    assert recover(opened(table)) == []


def test_writes_that_others_roll_back_meanwhile_are_not_said_to_be_committed_though_the_timeline_begins_later(
    table: HudiTable,
) -> None:
    gone = [stopped(writer(table), "begun").time for _ in range(2)]

    def others_go_on() -> None:
        roll_back_failed_writes(writer(table))
        commit(writer(table))

    with probe.listening(at(Point.ROLLBACK_PLANNED, others_go_on)):
        found = recover(writer(table))
    assert [(one.instant, one.fate) for one in found] == [(time, Fate.ROLLED_BACK) for time in gone]
    timeline = writer(table).timeline
    assert timeline.is_past(gone[0]) and not timeline.pending
    assert sum(one.action is Action.ROLLBACK for one in timeline.instants) == 2


def test_a_bulk_insert_whose_driver_saw_no_end_of_it_is_rolled_back_for_nobody_knows_its_slots(
    table: HudiTable,
) -> None:
    failed = Transaction(table, terms())
    failed.begin(slots=None)
    stage(table, dead(failed))
    (found,) = recover(opened(table))
    assert found.fate is Fate.ROLLED_BACK
    assert data_files(table.storage) == [] and leftovers(table.storage) == []


def test_a_bulk_insert_that_was_finalized_is_recovered(table: HudiTable) -> None:
    failed = Transaction(table, terms())
    failed.begin(slots=None)
    stage(table, dead(failed))
    failed.finalize(1)
    (found,) = recover(opened(table))
    assert found.fate is Fate.COMMITTED
    assert len(data_files(table.storage)) == 1


@pytest.mark.parametrize("compared", [False, True])
def test_a_write_whose_rows_were_counted_is_recovered_only_once_they_were_compared(
    table: HudiTable, compared: bool
) -> None:
    failed = Transaction(table, terms())
    failed.begin(slots=1, counted=True)
    stage(table, dead(failed))
    markers = failed.finalize(1)
    if compared:
        failed.compare(markers, [({0}, Fingerprint(rows=1))])
    (found,) = recover(opened(table))
    assert found.fate is (Fate.COMMITTED if compared else Fate.ROLLED_BACK)
    assert len(data_files(table.storage)) == int(compared)


@pytest.mark.parametrize("stop", ["staged", "finalized"])
def test_a_driver_that_only_slept_finds_its_write_recovered_and_calls_it_a_success(
    table: HudiTable, stop: str
) -> None:
    asleep = stopped(table, stop)
    recover(opened(table))
    files = data_files(table.storage)
    try:
        asleep.commit(asleep.finalize(1))
    except Exception as error:
        assert asleep.abort(repr(error)) is False
    assert asleep.done is not None and not asleep.done.pending
    assert data_files(table.storage) == files
    assert len(opened(table).base_files()) == 1


def test_a_driver_that_failed_is_not_recovered_after_it_said_so(table: HudiTable) -> None:
    failed = stopped(table, "finalized")
    assert failed.abort("it failed") is True
    assert recover(opened(table)) == []
    assert data_files(table.storage) == []


class Full:
    """A store without room for one more object."""

    def __init__(self, inner: Storage) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def put_if_absent(self, path: str, data: bytes) -> None:
        raise StorageFullError("no space is left", path=path)


@pytest.mark.parametrize("stop", ["staged", "finalized"])
def test_a_driver_that_had_no_room_to_give_its_write_up_is_not_recovered_either(
    table: HudiTable, stop: str
) -> None:
    failed, real = stopped(table, stop), table.storage
    table.storage = Full(real)  # type: ignore[assignment]
    if stop == "finalized" and not real.staging.has_folders:
        # There is no step that a commit would meet: others may have put one.
        with pytest.raises(CommitUnknownError, match="no space is left"):
            failed.abort("the disk is full")
        table.storage = real
        assert [one.fate for one in recover(opened(table))] == [Fate.COMMITTED]
        return
    assert failed.abort("the disk is full") is True
    table.storage = real
    (found,) = recover(opened(table))
    assert found.fate is Fate.ROLLED_BACK
    assert data_files(real) == [] and leftovers(real) == []


class FullFor(Full):
    """A store without room for one driver, at whose refusal something else happens, once."""

    def __init__(self, inner: Storage, then: Callable[[], object]) -> None:
        super().__init__(inner)
        self._then = [then]

    def put_if_absent(self, path: str, data: bytes) -> None:
        if self._then:
            self._then.pop()()
        super().put_if_absent(path, data)


@pytest.mark.parametrize("stop", ["decided", "published"])
def test_a_commit_that_was_decided_while_another_had_no_room_to_give_the_write_up_stands(
    table: HudiTable, stop: str
) -> None:
    write, real = begun(table), table.storage
    stage(table, write)
    markers = write.finalize(1)
    other = opened(table)

    def decides() -> None:
        table.storage = StopsAt(real, stop)  # type: ignore[assignment]
        with pytest.raises(Stop):
            write.commit(markers)
        table.storage = real

    other.storage = FullFor(real, decides)  # type: ignore[assignment]
    assert isinstance(Control(other, write.folder).give_up("taken for dead"), Commit)
    dead(write)
    assert roll_back_failed_writes(opened(table)) == []
    assert len(opened(table).base_files()) == 1 and leftovers(real) == []


@pytest.mark.parametrize("stop", ["staged", "finalized"])
def test_who_comes_to_decide_after_another_had_no_room_to_give_its_write_up_commits_nothing(
    table: HudiTable, stop: str
) -> None:
    write, real = begun(table), table.storage
    stage(table, write)
    markers = write.finalize(1) if stop == "finalized" else []
    other = opened(table)
    other.storage = Full(real)  # type: ignore[assignment]
    if stop == "finalized" and not real.staging.has_folders:
        # Its driver may decide at any moment, and there is no step that would meet that.
        with pytest.raises(StorageFullError):
            Control(other, write.folder).give_up("taken for dead")
        write.commit(markers)
        assert len(opened(table).base_files()) == 1
        return
    assert not isinstance(Control(other, write.folder).give_up("taken for dead"), Commit)
    with pytest.raises(FencedError):
        write.commit(markers or write.finalize(1))
    assert write.abort("fenced") is True
    assert data_files(real) == [] and leftovers(real) == []


class FullAfterALostAnswer(Full):
    """The decision is put, and nobody is told; then there is no more room."""

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner)
        self._asked = 0

    def put_if_absent(self, path: str, data: bytes) -> None:
        if path.endswith("/decision"):
            self._asked += 1
            if self._asked == 1:
                self._inner.put_if_absent(path, data)
                raise UnavailableError("no answer", path=path)
            if self._asked == 2:
                raise StorageFullError("no space is left", path=path)
        self._inner.put_if_absent(path, data)


def test_a_commit_whose_decision_was_put_and_not_answered_is_not_given_up_for_want_of_room(
    table: HudiTable,
) -> None:
    write, real = begun(table), table.storage
    stage(table, write)
    markers = write.finalize(1)
    table.storage = FullAfterALostAnswer(real)  # type: ignore[assignment]
    write.commit(markers)
    table.storage = real
    write.clean_up()
    assert len(data_files(real)) == 1 and leftovers(real) == []


# -- under another lock, or without one ----------------------------------------------------------------


def test_a_write_is_not_committed_by_who_does_not_share_its_lock_and_the_others_are_ended(
    table: HudiTable,
) -> None:
    first = commit(table)
    mine = stopped(table, "staged")
    shared = stopped(writer(table), "staged")
    decided = stopped(writer(table), "decided")
    stopped(writer(table), "begun")
    with pytest.raises(LockError, match=r"goes by the lock \.hoodie/lock.*none that others share") as found:
        recover(opened(table))
    assert (found.value.kind, found.value.instant) == ("other-lock", shared.time)
    assert "hoodie.write.lock.provider=FileSystemBasedLockProvider" in str(found.value)
    timeline = opened(table).timeline
    assert [one.time for one in timeline.pending] == [shared.time]
    assert {one.time for one in timeline.completed_writes} == {first.time, mine.time, decided.time}
    assert [one.fate for one in recover(writer(table))] == [Fate.COMMITTED]


def test_a_write_of_this_id_is_not_committed_nor_written_again_by_who_does_not_share_its_lock(
    table: HudiTable,
) -> None:
    first = named(writer(table))
    with pytest.raises(LockError, match="goes by the lock"):
        earlier_result(opened(table), "daily", "insert")
    assert [one.time for one in opened(table).timeline.pending] == [first.time]
    result = earlier_result(writer(table), "daily", "insert")
    assert result is not None and result.instant == first.time


def test_a_write_that_goes_by_no_lock_of_others_may_be_committed_under_any(table: HudiTable) -> None:
    stopped(table, "finalized")
    assert [one.fate for one in recover(writer(table))] == [Fate.COMMITTED]


@pytest.mark.parametrize("shares", [False, True])
def test_living_writes_that_go_by_a_lock_of_several_are_not_rolled_back_with_the_failed_ones(
    table: HudiTable, shares: bool
) -> None:
    commit(table)
    living, gone, single = begun(writer(table)), stopped(writer(table), "staged"), begun(table)
    decided = stopped(writer(table), "decided")
    eager = writer(table, failed_writes=FailedWritesPolicy.EAGER) if shares else opened(table)
    undone = {one.time for one in roll_back_as_a_write_would(eager)}
    assert undone == ({gone.time} if shares else {gone.time, single.time})
    assert decided.time in {one.time for one in opened(table).timeline.completed_writes}
    stage(table, living)
    living.commit(living.finalize(1))
    assert living.done is not None


@pytest.mark.parametrize("torn", [False, True])
def test_a_write_without_a_readable_gate_is_rolled_back_only_once_its_heartbeat_is_gone(
    table: HudiTable, torn: bool
) -> None:
    unknown = begun(table)
    table.storage.delete(unknown.folder.gate)
    if torn:
        table.storage.put(unknown.folder.gate, b"torn")
    assert roll_back_as_a_write_would(opened(table)) == []
    dead(unknown)
    assert [one.time for one in roll_back_as_a_write_would(opened(table))] == [unknown.time]


def test_a_write_stays_while_the_lock_is_busy_and_is_committed_afterwards(table: HudiTable) -> None:
    failed = stopped(writer(table), "finalized")
    held = writer(table).coordination.lock.acquire("a busy writer", seconds=0)
    with pytest.raises(LockError, match="a busy writer"):
        recover(writer(table))
    assert [one.time for one in opened(table).timeline.pending] == [failed.time]
    held.release()
    assert [one.fate for one in recover(writer(table))] == [Fate.COMMITTED]


class Refusing:
    """A store that refuses the first thing of a kind that is put."""

    def __init__(self, inner: Storage, what: str, error: Exception) -> None:
        self._inner, self._what, self._error = inner, what, error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def put_if_absent(self, path: str, data: bytes) -> None:
        if self._what in path:
            raise self._error
        self._inner.put_if_absent(path, data)


@pytest.mark.parametrize(
    "error", [StorageFullError("no space is left"), PermissionDeniedError("not for you")], ids=str
)
@pytest.mark.parametrize("what", ["/finalize", "/decision"])
def test_a_write_stays_that_could_not_be_committed_for_want_of_room_or_permission(
    table: HudiTable, what: str, error: RobustWriteError
) -> None:
    failed, real = stopped(table, "staged"), table.storage
    table.storage = Refusing(real, what, error)  # type: ignore[assignment]
    with pytest.raises(RobustWriteError, match=str(error)):
        recover(opened(table))
    table.storage = real
    assert [one.time for one in opened(table).timeline.pending] == [failed.time]
    assert [one.fate for one in recover(opened(table))] == [Fate.COMMITTED]


def test_a_write_stays_whose_lock_was_taken_away_from_who_was_about_to_commit_it(table: HudiTable) -> None:
    failed = stopped(writer(table), "finalized")
    with (
        probe.listening(at(Point.COMMIT_STAGED, lambda: table.storage.delete(LOCK))),
        pytest.raises(FencedError) as found,
    ):
        recover(writer(table))
    assert found.value.kind == "lock-lost"
    assert [one.time for one in opened(table).timeline.pending] == [failed.time]
    assert [one.fate for one in recover(writer(table))] == [Fate.COMMITTED]


# -- the same write, run again -------------------------------------------------------------------------


def named(table: HudiTable, name: str = "daily") -> Transaction:
    transaction = begun(table, extra={WRITE_ID: name})
    stage(table, transaction)
    return transaction


def test_a_durable_write_is_found_by_its_id(table: HudiTable) -> None:
    first = named(table)
    first.commit(first.finalize(1))
    first.clean_up()
    commit(table)
    result = earlier_result(opened(table), "daily", "insert")
    assert result is not None and result.earlier
    assert (result.instant, result.inserted, result.files_created) == (first.time, 1, 1)
    assert "an earlier run has committed it" in str(result)
    assert earlier_result(opened(table), "another", "insert") is None


def test_a_write_of_this_id_that_is_all_there_is_committed_and_of_another_left_alone(
    table: HudiTable,
) -> None:
    mine = named(table)
    other = named(opened(table), "other")
    result = earlier_result(opened(table), "daily", "insert")
    assert result is not None and result.instant == mine.time
    assert [i.time for i in opened(table).timeline.pending] == [other.time]
    assert [i.time for i in roll_back_failed_writes(opened(table))] == [other.time]


def test_of_two_runs_of_a_write_at_once_one_is_committed_and_the_other_one_learns_which(
    table: HudiTable,
) -> None:
    first, second = named(table), named(opened(table))
    markers = second.finalize(1)
    first.commit(first.finalize(1))
    with pytest.raises(WrittenEarlier) as found:
        second.commit(markers)
    assert found.value.write.instant.time == first.time
    assert second.abort("another run was faster") is True
    assert len(opened(table).base_files()) == len(data_files(table.storage)) == 1
