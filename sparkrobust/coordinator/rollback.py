"""Rolling back failed writes, in two steps (RFC-79): under the lock each that has failed gets a plan; then,
without it, every plan that is pending is carried out, whoever has made it.

The plan comes from the begin markers; what is done, in which order, and what is written down is
Hudi's, so that Hudi can finish a rollback that we began and we one of Hudi's.  Each step may be
done again, by several at once, and late.  A write of ours is undone only once ABORT is decided for
it: where COMMIT stands it is finished instead, unless others have come in between (``overtaken.py``).
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from sparkrobust.coordinator.conflicts import refuse_while_restoring
from sparkrobust.coordinator.control import Control
from sparkrobust.coordinator.forward import Ending, roll_forward, tidy_up, was_rolled_back
from sparkrobust.coordinator.heartbeat import living
from sparkrobust.coordinator.leftovers import (
    begin_markers,
    control_folders,
    heartbeats,
    marked_instants,
    ours,
    remove_markers,
)
from sparkrobust.coordinator.locking import locked
from sparkrobust.coordinator.rollback_plans import is_without_plan, pending_plans, pending_targets, plan_of
from sparkrobust.coordinator.table import HudiTable
from sparkrobust.coordinator.times import age_ms, next_time
from sparkrobust.core.conflicts import Work, work_of
from sparkrobust.core.decision import Abort, Commit
from sparkrobust.core.failed_writes import Fate, Pending, fate_of
from sparkrobust.core.instant import Action, Instant, InstantTime, State, is_instant_time
from sparkrobust.core.names import (
    REMOVABLE,
    BaseFileName,
    MarkerType,
    heartbeat_file,
    instant_file,
    marker_folder,
)
from sparkrobust.core.partition_path import problem_with
from sparkrobust.errors import (
    CommitOutcome,
    ConflictError,
    CorruptTableError,
    FencedError,
    RobustWriteError,
    UnsupportedTableError,
)
from sparkrobust.formats.rollback import InstantInfo, RollbackMetadata, RollbackPlan, RollbackRequest
from sparkrobust.options import FailedWritesPolicy
from sparkrobust.probe import Point, reached
from sparkrobust.storage.contract import AlreadyExistsError

_log = logging.getLogger("sparkrobust")

_SAME_STORE = (("s3://", "s3a://"), ("abfs://", "abfss://"), ("wasb://", "wasbs://"))
_TRIES = 5
_HDFS = re.compile(r"^hdfs:(//[^/]*)?")


def roll_back_failed_writes(table: HudiTable) -> list[Instant]:
    """Finish pending rollbacks, end pending writes, sweep what ended ones left.

    Returns
    -------
    The writes that were rolled back; those whose commit was decided are finished instead.

    Raises
    ------
    ConflictError
        The table is being restored.
    """
    refuse_while_restoring(table)
    failed = _failed(table)
    for instant in failed:
        # What is decided is no failed write; nor can it be finished under a lock that is held already.
        finish_decided(table, _controls(table, instant.time))
    if failed:
        _schedule_rollbacks(table)
    half_done = [i for i in table.timeline.pending if i.action is Action.ROLLBACK]
    undone = [write for rollback in half_done if (write := _finish(table, rollback)) is not None]
    _sweep(table)
    return undone


def _schedule_rollbacks(table: HudiTable) -> None:
    """Step 1: under the lock, a plan for every pending instant that has failed and has none."""
    with locked(table, "scheduling of rollbacks") as grip:
        table.reload()
        refuse_while_restoring(table)
        targets = pending_targets(table)
        for instant in _failed(table):
            if instant.time in targets:
                continue
            if not grip.is_held():
                break  # it sees to the others who has the lock now
            requested, _ = _scheduled(table, instant)
            reached(Point.ROLLBACK_PLANNED, instant=instant.time, rollback=requested.time)
        table.reload()


def _failed(table: HudiTable) -> list[Instant]:
    """The pending instants that are to be rolled back."""
    policy, delay_ms = table.coordination.failed_writes, table.coordination.rollback_delay_ms
    eager, never = policy is FailedWritesPolicy.EAGER, policy is FailedWritesPolicy.NEVER
    pending = [instant for instant in table.timeline.pending if work_of(instant) is not None]
    is_asked = not eager or any(table.work_of(instant) is not Work.INGESTION for instant in pending)
    alive = living(table) if pending and is_asked else frozenset()

    def fate(instant: Instant) -> Fate:
        known = _known(table, instant, alive=instant.time in alive)
        return fate_of(known, eager=eager, never=never, delay_ms=delay_ms)

    return [instant for instant in pending if fate(instant) is Fate.ROLLED_BACK]


def _known(table: HudiTable, instant: Instant, *, alive: bool) -> Pending:
    if table.work_of(instant) is Work.INGESTION:
        return Pending(service=False, alive=alive)
    return Pending(
        service=True,
        removable=table.plan_says(instant, REMOVABLE) == "true",
        alive=alive,
        age_ms=age_ms(table.clock, table.config, instant.time),
    )


def roll_back(table: HudiTable, failed: Instant, reason: str) -> bool:
    """End one pending write: ``False`` if its commit was decided, and so it was finished."""
    controls = _controls(table, failed.time)
    if finish_decided(table, controls):
        return False
    with locked(table, _owner(failed.time)):
        if table.coordination.lock.shared:
            table.reload()
        refuse_while_restoring(table)
        if _is_rolled_back(table, failed.time, failed.action):
            return True
        requested, plan = pending_plans(table).get(failed.time) or _scheduled(table, failed)
    reached(Point.ROLLBACK_PLANNED, instant=failed.time, rollback=requested.time)
    return _execute(table, requested, plan, reason)


def _is_rolled_back(table: HudiTable, time: str, action: Action) -> bool:
    """Whether others have rolled the write back, and are done with it."""
    return table.timeline.find(time, action) is None and was_rolled_back(table, time)


def _scheduled(table: HudiTable, failed: Instant) -> tuple[Instant, RollbackPlan]:
    """A rollback that has been requested just now."""
    plan = _plan(table, failed)
    for _ in range(_TRIES):
        time = next_time(table.clock, table.config, table.timeline.newest_time)
        requested = Instant(time=time, action=Action.ROLLBACK, state=State.REQUESTED)
        try:
            table.storage.put_if_absent(instant_file(requested), plan.to_bytes())
        except AlreadyExistsError:
            table.reload()  # another driver was faster by less than a millisecond
            continue
        return requested, plan
    raise ConflictError(
        f"{_TRIES} times another driver took the instant for a rollback",
        path=table.storage.url,
        outcome=CommitOutcome.RETRYABLE,
    )


def _owner(time: str) -> str:
    """What the lock is told."""
    return f"rollback of {time}"


def _controls(table: HudiTable, time: str) -> list[Control]:
    """The control folder of a write; none if it is a foreign one."""
    folders = [folder for folder in control_folders(table.storage) if folder.instant == time]
    return [Control(table, folder) for folder in folders]


def finish_decided(table: HudiTable, controls: Iterable[Control]) -> bool:
    """Finish the write if its commit is decided; whether it is durable now."""
    for control in controls:
        decided = control.decision()
        if not isinstance(decided, Commit):
            continue
        with locked(table, f"finishing of {control.folder.instant}"):
            ending = roll_forward(table, control, decided)
        if ending is Ending.DURABLE:
            table.reload()
            with left_to_the_next_write():
                tidy_up(table, control, decided)
            return True
    return False


@contextlib.contextmanager
def left_to_the_next_write() -> Iterator[None]:
    """A write is durable: what of it can't be tidied up now is swept by the next one."""
    try:
        yield
    except RobustWriteError as error:
        _log.warning("committed, but not cleaned up: %s", error)


def _sweep(table: HudiTable) -> None:
    """Remove what ended writes left, whose drivers died before they had cleaned up."""
    spares = table.coordination.failed_writes is not FailedWritesPolicy.EAGER
    storage = table.storage
    (folders, files), marked, beats = ours(storage), marked_instants(storage), heartbeats(storage)
    for path in files:
        storage.delete(path)
    if not folders and not marked and not beats:
        return
    # After the listings: what is begun since then is pending by now.
    table.reload()
    pending = {instant.time for instant in table.timeline.pending}
    if spares:
        # Others may be about to request what they have a heartbeat and a gate for.
        pending |= {InstantTime(time) for time in living(table) if is_instant_time(time)}
    for folder in folders:
        if folder.instant in pending:
            continue
        control = Control(table, folder)
        decided = None
        with contextlib.suppress(FencedError):
            # Its driver may only sleep before its requested file: then it must find this.
            decided = control.give_up("nobody has begun it")
        if isinstance(decided, Commit):
            # Finished, or rolled back by a writer of Hudi's.
            with locked(table, f"sweeping of {folder.instant}"):
                roll_forward(table, control, decided)
            tidy_up(table, control, decided)
        else:
            control.remove()
    for instant in marked:
        # On a store without folders a task that comes late makes its marker folder anew.
        if instant not in pending:
            remove_markers(storage, instant)
    for instant in beats:
        if instant not in pending:
            storage.delete(heartbeat_file(instant))


def _plan(table: HudiTable, failed: Instant) -> RollbackPlan:
    """One request for every file that was marked, whether it came to be or not."""
    if failed.action in (Action.DELTA_COMMIT, Action.LOG_COMPACTION):
        raise UnsupportedTableError(f"{failed} is of a merge-on-read table", instant=failed.time)
    requests = []
    # A write that never got inflight has written nothing: Hudi plans nothing for it.
    marked = begin_markers(table.storage, failed.time) if failed.state is State.INFLIGHT else ()
    for path, kind in sorted(marked, key=lambda mark: mark[0]):
        partition, _, name = path.rpartition("/")
        base = BaseFileName.parse(name)
        if (
            kind is MarkerType.APPEND
            or base is None
            or base.instant != failed.time
            or problem_with(partition)
        ):
            raise CorruptTableError(
                f"{marker_folder(failed.time)} marks {path!r}, which is no base file of {failed.time}",
                path=marker_folder(failed.time),
                instant=failed.time,
                hint="look at the file and the marker; a rollback deletes only what it understands",
            )
        requests.append(
            RollbackRequest.of_marked_file(
                partition_path=partition,
                file_id=base.file_id,
                absolute_path=_absolute(table, path),
                instant=failed.time,
            )
        )
    info = InstantInfo(commit_time=failed.time, action=failed.action.value)
    return RollbackPlan(instant_to_rollback=info, rollback_requests=tuple(requests))


def _files_of(table: HudiTable, time: str) -> list[str]:
    """The data files of an instant that are marked now."""
    marked = (path for path, _ in begin_markers(table.storage, time))
    names = ((path, BaseFileName.parse(path.rpartition("/")[2])) for path in marked)
    return [path for path, name in names if name and name.instant == time and not problem_with(path)]


def _absolute(table: HudiTable, path: str) -> str:
    # Hudi's plans have a local path without a scheme.
    return f"{table.storage.url.removeprefix('file://')}/{path}"


def _relative(table: HudiTable, plan_path: str, absolute: str) -> str:
    """A path of a plan, which any writer may have written, as one inside of this table."""
    root = _absolute(table, "")
    if root.startswith("hdfs:"):
        # Of one file system, and so the same whether it is named, by either of its names, or not.
        root, absolute = _HDFS.sub("", root), _HDFS.sub("", absolute)
    spellings = [root, f"file:{root}", f"file://{root}"]
    for one, other in _SAME_STORE:
        spellings += [root.replace(one, other, 1), root.replace(other, one, 1)]
    for spelling in spellings:
        if absolute.startswith(spelling):
            relative = absolute[len(spelling) :]
            if problem_with(relative) is None:
                return relative
    raise CorruptTableError(
        f"{plan_path} wants to delete {absolute!r}, which does not lie in the table", path=plan_path
    )


def _execute(table: HudiTable, rollback: Instant, plan: RollbackPlan, reason: str) -> bool:
    """Carry a rollback out; ``False`` if there was nothing to undo."""
    storage, started = table.storage, table.clock.elapsed()
    failed, plan_path = plan.instant_to_rollback, instant_file(replace(rollback, state=State.REQUESTED))
    victims = [
        _relative(table, plan_path, path)
        for request in plan.rollback_requests
        for path in request.files_to_be_deleted
    ]
    controls = _controls(table, failed.commit_time)
    for control in controls:
        with contextlib.suppress(FencedError):  # somebody has carried it out, and cleaned up
            control.decide(Abort(reason=reason))
    reached(Point.ABORT_DECIDED, instant=failed.commit_time, rollback=rollback.time)
    durable = finish_decided(table, controls)
    # Only now: an end that came before ABORT was put is on the timeline by now, and none comes after it.
    table.reload()
    refuse_while_restoring(table)
    write = table.timeline.find(failed.commit_time, Action(failed.action))
    if write is not None and write.pending and _is_complete(table, rollback):
        return True  # others have carried it out, and what stands there now came after it
    if not durable and write is not None and write.pending:
        with contextlib.suppress(AlreadyExistsError):  # an earlier execution of this plan came as far
            storage.put_if_absent(instant_file(replace(rollback, state=State.INFLIGHT)), b"")
        for control in controls:
            control.revoke()
        reached(Point.REVOKED, instant=failed.commit_time, rollback=rollback.time)
        # A task of a write in mode direct may have made another file visible since this was planned.
        for path in dict.fromkeys((*victims, *_files_of(table, failed.commit_time))):
            storage.delete(path)
        reached(Point.FILES_DELETED, instant=failed.commit_time, rollback=rollback.time)
    elif durable or write is not None or table.timeline.is_past(failed.commit_time):
        # What is past may be committed, and archived.
        _withdraw(table, rollback)
        return _is_rolled_back(table, failed.commit_time, Action(failed.action))
    with locked(table, _owner(failed.commit_time)):
        if not _complete(table, rollback, plan, started):
            return True
    for control in controls:
        control.remove()
    remove_markers(storage, failed.commit_time)
    storage.delete(heartbeat_file(failed.commit_time))
    table.reload()
    return True


def _complete(table: HudiTable, rollback: Instant, plan: RollbackPlan, started: float) -> bool:
    """Take the write off the timeline, and say that it was rolled back.

    Returns
    -------
    ``False`` if others had done so, and something stands there that came after it.
    """
    storage, failed = table.storage, plan.instant_to_rollback
    table.reload()
    if _is_complete(table, rollback):
        return table.timeline.find(failed.commit_time, Action(failed.action)) is None
    for state in (State.INFLIGHT, State.REQUESTED):
        storage.delete(instant_file(_instant_of(failed, state)))
    reached(Point.INSTANTS_DELETED, instant=failed.commit_time, rollback=rollback.time)
    table.reload()
    if not _is_complete(table, rollback):
        metadata = RollbackMetadata.of_plan(
            plan,
            rollback_instant=rollback.time,
            time_taken_in_millis=int((table.clock.elapsed() - started) * 1000),
        )
        completion = next_time(table.clock, table.config, max(table.timeline.newest_time, rollback.time))
        done = replace(rollback, state=State.COMPLETED, completion=completion)
        storage.put_if_absent(instant_file(done), metadata.to_bytes())
        reached(Point.ROLLED_BACK, instant=failed.commit_time, rollback=rollback.time)
    return True


def _is_complete(table: HudiTable, rollback: Instant) -> bool:
    found = table.timeline.find(rollback.time, Action.ROLLBACK)
    return found is not None and not found.pending


def _withdraw(table: HudiTable, rollback: Instant) -> None:
    """Take a rollback off the timeline that has nothing to undo."""
    if not _is_complete(table, rollback):
        for state in (State.INFLIGHT, State.REQUESTED):
            table.storage.delete(instant_file(replace(rollback, state=state)))
    table.reload()


def _instant_of(info: InstantInfo, state: State) -> Instant:
    return Instant(time=InstantTime(info.commit_time), action=Action(info.action), state=state)


def _remove_without_plan(table: HudiTable, rollback: Instant) -> None:
    """Take a rollback off the timeline that nobody can ever carry out, as Hudi does."""
    if not is_without_plan(rollback, table.requested(rollback)):
        return
    with locked(table, f"removal of {rollback.time}"):
        table.reload()
        refuse_while_restoring(table)
        now = table.timeline.find(rollback.time, Action.ROLLBACK)
        if now == rollback and is_without_plan(now, table.requested(now)):
            _log.warning("the rollback %s of %s has no plan: it is removed", now.time, table.storage.url)
            _withdraw(table, now)


def _is_of_a_plan_that_stays(table: HudiTable, plan: RollbackPlan) -> bool:
    """Whether it is a step of executing a table service's plan again, which belongs to who does that.

    It keeps the plan, and is over before the new execution begins: of that a late one would delete the files.
    """
    failed = plan.instant_to_rollback
    target = table.timeline.find(failed.commit_time, Action(failed.action))
    if target is None or not target.pending or work_of(target) is None:
        return False
    return _known(table, target, alive=False).stays


def _finish(table: HudiTable, rollback: Instant) -> Instant | None:
    """Carry out a rollback that somebody planned; the write that is undone, if it had not ended otherwise."""
    plan = plan_of(table, rollback)
    if plan is None:
        _remove_without_plan(table, rollback)
        return None
    if _is_of_a_plan_that_stays(table, plan):
        return None
    undone = _execute(table, rollback, plan, "its driver is gone")
    return _instant_of(plan.instant_to_rollback, State.INFLIGHT) if undone else None
