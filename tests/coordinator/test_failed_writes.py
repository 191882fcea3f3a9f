"""Who undoes and executes what among several writers (RFC-79, table services and rollbacks)."""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from sparkrobust import probe
from sparkrobust.coordinator.heartbeat import Heartbeat
from sparkrobust.coordinator.leftovers import begin_markers
from sparkrobust.coordinator.recovery import recover
from sparkrobust.coordinator.rollback import roll_back_failed_writes
from sparkrobust.coordinator.services import executing
from sparkrobust.coordinator.table import HudiTable
from sparkrobust.coordinator.times import age_ms, next_time
from sparkrobust.core.instant import Action, Instant, InstantTime, State
from sparkrobust.core.names import MarkerType, begin_marker, heartbeat_file, instant_file, marker_folder
from sparkrobust.core.table_config import TableConfig
from sparkrobust.errors import ConflictError, CorruptTableError, FencedError
from sparkrobust.options import FailedWritesPolicy
from sparkrobust.probe import Point
from sparkrobust.storage.contract import AlreadyExistsError
from sparkrobust.world import Clock
from tests.clocks import TestClock
from tests.coordinator.writers import LOCK, clustering, complete, rollback_of, writer
from tests.coordinator.writes import begun, data_files, leftovers, stage, stopped
from tests.moments import at

HOUR_MS = 3_600_000


def die() -> None:
    """The driver is stopped here."""
    raise KeyboardInterrupt


# -- failed writes -----------------------------------------------------------------------------------------


def test_among_several_writers_a_live_write_is_spared_and_a_dead_one_is_rolled_back(table: HudiTable) -> None:
    alive, gone = begun(writer(table)), stopped(writer(table), "staged")
    assert [one.time for one in roll_back_failed_writes(writer(table))] == [gone.time]
    stage(table, alive)
    alive.commit(alive.finalize(1))
    alive.clean_up()
    assert len(data_files(table.storage)) == 1 and leftovers(table.storage) == []


def test_a_single_writer_takes_every_pending_write_for_a_failed_one(table: HudiTable) -> None:
    alive = begun(table)
    assert [
        one.time for one in roll_back_failed_writes(writer(table, failed_writes=FailedWritesPolicy.EAGER))
    ] == [alive.time]


def test_who_never_rolls_back_leaves_dead_writes_to_others(table: HudiTable) -> None:
    gone = stopped(writer(table), "staged")
    never = writer(table, failed_writes=FailedWritesPolicy.NEVER)
    assert roll_back_failed_writes(never) == []
    never.reload()
    assert [one.time for one in never.timeline.pending] == [gone.time]


def test_all_plans_are_made_under_the_lock_before_the_first_is_carried_out_without_it(
    table: HudiTable,
) -> None:
    gone = {stopped(writer(table), stop).time for stop in ("begun", "staged", "finalized")}
    seen: list[tuple[Point, bool]] = []
    ours = writer(table)

    def look(point: Point, facts: dict[str, Any]) -> None:
        if point in (Point.ROLLBACK_PLANNED, Point.ABORT_DECIDED):
            seen.append((point, ours.coordination.lock.holder() is not None))

    with probe.listening(look):
        undone = roll_back_failed_writes(ours)
    assert {one.time for one in undone} == gone
    assert seen == [(Point.ROLLBACK_PLANNED, True)] * 3 + [(Point.ABORT_DECIDED, False)] * 3
    assert leftovers(table.storage) == [] and not ours.timeline.pending


def test_a_dead_write_that_has_a_plan_gets_no_second_one(table: HudiTable) -> None:
    gone = stopped(writer(table), "staged")

    with probe.listening(at(Point.ABORT_DECIDED, die)), pytest.raises(KeyboardInterrupt):
        roll_back_failed_writes(writer(table))
    assert [one.time for one in roll_back_failed_writes(writer(table))] == [gone.time]
    done = writer(table).timeline.instants
    assert [one.state for one in done if one.action is Action.ROLLBACK] == [State.COMPLETED]


def test_two_writers_may_carry_out_the_same_plans_at_once(table: HudiTable) -> None:
    for stop in ("staged", "finalized"):
        stopped(writer(table), stop)
    problems: list[BaseException] = []

    def undo() -> None:
        try:
            # They wait for each other, so for them time has to pass.
            roll_back_failed_writes(writer(replace(table, clock=Clock()), lock_seconds=60))
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=undo) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    after = writer(table)
    assert not after.timeline.pending and not data_files(table.storage) and leftovers(table.storage) == []
    # However many rollbacks were begun, none is left half done.
    assert all(one.state is State.COMPLETED for one in after.timeline.instants)


def test_a_writer_that_has_begun_and_requested_nothing_yet_is_not_swept_away(table: HudiTable) -> None:
    others = []

    def sweep(point: Point, facts: dict[str, Any]) -> None:
        if point is Point.GATE_OPENED and not others:
            others.append(roll_back_failed_writes(writer(table)))

    with probe.listening(sweep):
        ours = writer(table)
        write = begun(ours)
    stage(ours, write)
    write.commit(write.finalize(1))
    assert others == [[]] and len(data_files(table.storage)) == 1


def test_a_rollback_whose_plan_was_never_written_is_removed_and_a_warning_says_so(
    table: HudiTable, caplog: pytest.LogCaptureFixture
) -> None:
    gone = stopped(table, "staged")
    empty = Instant(time=InstantTime("20991231000000000"), action=Action.ROLLBACK, state=State.REQUESTED)
    table.storage.put_if_absent(instant_file(empty), b"")
    assert [one.time for one in roll_back_failed_writes(writer(table))] == [gone.time]
    assert writer(table).timeline.find(empty.time, Action.ROLLBACK) is None
    assert [record.levelname for record in caplog.records if empty.time in record.message] == ["WARNING"]


@pytest.mark.parametrize(
    "state, content", [(State.REQUESTED, b"Obj"), (State.INFLIGHT, b"")], ids=["torn plan", "begun"]
)
def test_a_rollback_that_may_have_had_an_effect_is_never_removed_for_want_of_a_plan(
    table: HudiTable, state: State, content: bytes
) -> None:
    broken = Instant(time=InstantTime("20991231000000000"), action=Action.ROLLBACK, state=state)
    table.storage.put_if_absent(instant_file(replace(broken, state=State.REQUESTED)), content)
    with contextlib.suppress(AlreadyExistsError):
        table.storage.put_if_absent(instant_file(broken), b"")
    with pytest.raises(CorruptTableError, match=r"rollback\.requested"):
        roll_back_failed_writes(writer(table))
    assert writer(table).timeline.find(broken.time, Action.ROLLBACK) == broken


def test_a_rollback_whose_plan_is_just_being_written_stays(table: HudiTable) -> None:
    rollback = rollback_of(table, clustering(table))
    read, seen = table.storage.read, iter([b"", b""])

    def reads(path: str, **how: Any) -> bytes:
        return next(seen, read(path)) if path == instant_file(rollback) else read(path, **how)

    ours = writer(table)
    table.storage.read = reads  # type: ignore[method-assign]
    assert roll_back_failed_writes(ours) == []
    assert next(seen, None) is None, "it was empty when it was looked at"
    assert writer(table).timeline.find(rollback.time, Action.ROLLBACK) == rollback


# -- table services ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("inflight", [False, True], ids=["requested", "inflight"])
def test_a_removable_plan_is_rolled_back_and_gone_once_it_is_old_enough(
    table: HudiTable, *, inflight: bool
) -> None:
    plan = clustering(table, removable=True, inflight=inflight)
    assert roll_back_failed_writes(writer(table)) == []
    table.clock.sleep(3600)
    assert [one.time for one in roll_back_failed_writes(writer(table))] == [plan.time]
    assert writer(table).timeline.find(plan.time, Action.CLUSTERING) is None


def test_the_age_at_which_a_removable_plan_goes_can_be_chosen(table: HudiTable) -> None:
    plan = clustering(table, removable=True)
    assert roll_back_failed_writes(writer(table, rollback_delay_ms=HOUR_MS)) == []
    assert [one.time for one in roll_back_failed_writes(writer(table, rollback_delay_ms=0))] == [plan.time]


@pytest.mark.parametrize("inflight", [False, True], ids=["requested", "inflight"])
def test_a_plan_that_is_not_removable_stays_however_old_it_is(table: HudiTable, *, inflight: bool) -> None:
    plan = clustering(table, inflight=inflight)
    table.clock.sleep(100 * 3600)
    assert roll_back_failed_writes(writer(table)) == []
    assert writer(table).timeline.find(plan.time, Action.CLUSTERING) is not None


@pytest.mark.parametrize("inflight", [False, True], ids=["requested", "inflight"])
@pytest.mark.parametrize("action", [Action.CLUSTERING, Action.REPLACE_COMMIT], ids=["its word", "older word"])
def test_a_rollback_that_is_a_step_of_executing_a_plan_again_is_left_to_who_executes_it(
    table: HudiTable, action: Action, *, inflight: bool
) -> None:
    plan = clustering(table, inflight=inflight, action=action)
    step, running = rollback_of(table, plan), _running(table, plan.time)
    assert roll_back_failed_writes(writer(table)) == []
    assert data_files(table.storage) == [running]
    assert [one.time for one in writer(table).timeline.pending] == [plan.time, step.time]


@pytest.mark.parametrize("removable", [False, True], ids=["stays", "removable"])
def test_a_pending_replacecommit_is_a_table_service_where_its_plan_is_a_clustering(
    table: HudiTable, *, removable: bool
) -> None:
    plan = clustering(table, removable=removable, action=Action.REPLACE_COMMIT)
    overwrite = stopped(table, "staged", Action.REPLACE_COMMIT)
    eager = writer(table, failed_writes=FailedWritesPolicy.EAGER)
    assert [one.time for one in roll_back_failed_writes(eager)] == [overwrite.time]
    assert recover(writer(table), even_alive=True) == []
    table.clock.sleep(3600)
    gone = [plan.time] if removable else []
    assert [one.time for one in roll_back_failed_writes(writer(table))] == gone


def test_an_inflight_file_that_came_when_its_overwrite_had_been_rolled_back_is_taken_away(
    table: HudiTable,
) -> None:
    late = stopped(table, "begun", Action.REPLACE_COMMIT)
    requested = Instant(time=late.time, action=Action.REPLACE_COMMIT, state=State.REQUESTED)
    table.storage.delete(instant_file(requested))
    assert [one.time for one in roll_back_failed_writes(writer(table))] == [late.time]
    assert not writer(table).timeline.pending


@pytest.mark.parametrize("point", [Point.ABORT_DECIDED, Point.FILES_DELETED])
def test_a_rollback_that_others_completed_meanwhile_touches_nothing_of_what_came_after(
    table: HudiTable, point: Point
) -> None:
    plan = clustering(table, removable=True, inflight=True)  # as for others one is that stays
    rollback = rollback_of(table, plan)
    running: list[str] = []

    def execute_again() -> None:
        complete(table, rollback)
        running.append(_running(table, plan.time))

    with probe.listening(at(point, execute_again)):
        roll_back_failed_writes(writer(table))
    assert data_files(table.storage) == running
    assert [path for path, _ in begin_markers(table.storage, plan.time)] == running
    assert [(one.time, one.state) for one in writer(table).timeline.pending] == [(plan.time, State.INFLIGHT)]


def _running(table: HudiTable, time: str) -> str:
    """What a writer of Hudi's has written so far that executes a plan."""
    path = f"p1/f-0_0-1-2_{time}.parquet"
    for folder in ("p1", f"{marker_folder(time)}/p1"):
        table.storage.make_folder(folder)
    table.storage.put(begin_marker(time, path, MarkerType.CREATE), b"")
    table.storage.put(path, b"rows")
    return path


def test_a_plan_that_was_made_in_the_hour_that_clocks_have_twice_is_not_old_at_birth(
    table: HudiTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = TableConfig.of({**table.config.values, "hoodie.table.timeline.timezone": "LOCAL"}, path="")
    clock = TestClock()
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
        time.tzset()
        # Half past two comes at 00:30 and at 01:30 UTC, when summer time ends.
        for now in ("2026-10-25T00:30:00+00:00", "2026-10-25T01:30:00+00:00"):
            clock.ms = int(datetime.fromisoformat(now).timestamp() * 1000)
            made = next_time(clock, local, "")
            assert made == "20261025023000000" and age_ms(clock, local, made) == 0
        clock.ms += HOUR_MS
        assert age_ms(clock, local, made) == HOUR_MS
    time.tzset()


def test_a_removable_plan_that_is_being_executed_is_left_alone(table: HudiTable) -> None:
    plan = clustering(table, removable=True)
    table.clock.sleep(3600)
    with executing(writer(table), plan):
        assert roll_back_failed_writes(writer(table)) == []
    assert [one.time for one in roll_back_failed_writes(writer(table))] == [plan.time]


def test_who_loses_the_lock_while_it_begins_to_execute_a_plan_leaves_it_to_who_has_the_lock(
    table: HudiTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, ours = clustering(table), writer(table)
    start = Heartbeat.start

    def late(beats: Heartbeat) -> None:
        table.storage.delete(LOCK)  # it slept, and another one looked for its heartbeat in vain
        start(beats)

    with monkeypatch.context() as patched, pytest.raises(FencedError, match="lock expired"):
        patched.setattr(Heartbeat, "start", late)
        with executing(ours, plan):
            pytest.fail("two execute it")
    # The heartbeat may be the other one's by now.
    assert table.storage.stat(heartbeat_file(plan.time)) is not None


def test_a_plan_is_executed_by_one_at_a_time_and_its_heartbeat_goes_with_success_and_failure(
    table: HudiTable,
) -> None:
    plan = clustering(table)
    for problem in (None, RuntimeError("it failed")):
        try:
            with executing(writer(table), plan):
                assert table.storage.stat(heartbeat_file(plan.time)) is not None
                with pytest.raises(ConflictError, match="is being executed") as refused:
                    executing(writer(table), plan).__enter__()
                assert refused.value.outcome == "Retryable"
                if problem is not None:
                    raise problem
        except RuntimeError as raised:
            assert raised is problem
        assert table.storage.stat(heartbeat_file(plan.time)) is None


def test_the_heartbeat_of_an_execution_that_is_interrupted_before_it_begins_goes_with_it(
    table: HudiTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, ours = clustering(table), writer(table)
    stopped: list[bool] = []
    monkeypatch.setattr(ours.hands, "every", lambda seconds, work: lambda: stopped.append(True))
    # The clocks of hosts are waited for at the end of the lock.
    monkeypatch.setattr(ours.clock, "sleep", lambda seconds: die())
    with pytest.raises(KeyboardInterrupt), executing(ours, plan):
        raise AssertionError("it has begun")
    assert stopped == [True] and table.storage.stat(heartbeat_file(plan.time)) is None


def test_the_look_at_a_plan_and_its_heartbeat_happen_under_the_lock_and_its_execution_does_not(
    table: HudiTable,
) -> None:
    plan, ours = clustering(table), writer(table)
    held: list[bool] = []
    put = table.storage.put

    def look(path: str, data: bytes) -> None:
        held.append(table.storage.stat(LOCK) is not None)
        put(path, data)

    ours.storage.put = look  # type: ignore[method-assign]
    with executing(ours, plan):
        assert ours.coordination.lock.holder() is None
    assert held and held[0]


def test_a_removable_plan_that_was_begun_or_is_being_rolled_back_is_not_executed_again(
    table: HudiTable,
) -> None:
    begun_once = clustering(table, removable=True, inflight=True)
    with pytest.raises(ConflictError, match="was executed once"):
        executing(writer(table), begun_once).__enter__()
    doomed = clustering(table, removable=True)

    with probe.listening(at(Point.ABORT_DECIDED, die)), pytest.raises(KeyboardInterrupt):
        roll_back_failed_writes(writer(table, rollback_delay_ms=0))
    with pytest.raises(ConflictError, match="is being rolled back"):
        executing(writer(table), doomed).__enter__()


def test_a_plan_that_is_not_removable_is_executed_again_after_an_attempt_that_failed(
    table: HudiTable,
) -> None:
    plan = clustering(table, inflight=True)
    with executing(writer(table), plan):
        pass


def test_a_plan_that_is_gone_is_not_executed(table: HudiTable) -> None:
    plan = clustering(table, removable=True)
    roll_back_failed_writes(writer(table, rollback_delay_ms=0))
    with pytest.raises(ConflictError, match="not pending any more"):
        executing(writer(table), plan).__enter__()
    assert leftovers(table.storage) == []
