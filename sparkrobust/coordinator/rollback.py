"""Rolling back failed writes, as Hudi's EAGER policy does: before each write, everything pending.

The plan comes from the begin markers; what is done, in which order, and what is written down is
Hudi's, so that Hudi can finish a rollback that we began and we one of Hudi's.  Each step may be
done again: deleting what is gone is fine.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace

from sparkrobust.coordinator.leftovers import (
    begin_markers,
    control_folders,
    sweep_control_folder,
)
from sparkrobust.coordinator.stand_in import restore_properties, retire_old_partitions
from sparkrobust.coordinator.table import HudiTable
from sparkrobust.coordinator.times import next_time
from sparkrobust.core.instant import WRITES, Action, Instant, InstantTime, State
from sparkrobust.core.names import BaseFileName, ControlFolder, MarkerType, instant_file, marker_folder
from sparkrobust.core.partition_path import problem_with
from sparkrobust.errors import CorruptTableError, UnsupportedTableError
from sparkrobust.formats.rollback import InstantInfo, RollbackMetadata, RollbackPlan, RollbackRequest
from sparkrobust.storage.contract import AlreadyExistsError


def roll_back_failed_writes(table: HudiTable) -> list[Instant]:
    """Finish pending rollbacks, roll back pending writes, sweep what ended ones left; say which."""
    half_done = [i for i in table.timeline.pending if i.action is Action.ROLLBACK]
    for instant in half_done:
        _finish(table, instant)
    if half_done:
        table.reload()
    failed = [i for i in table.timeline.pending if i.action in WRITES]
    for instant in failed:
        roll_back(table, instant)
    pending = {instant.time for instant in table.timeline.pending}
    for control in control_folders(table.storage):
        if control.instant not in pending:
            # Its driver died between its commit and its cleaning up, or before its requested file.
            sweep_finished_write(table, control)
    return failed


def sweep_finished_write(table: HudiTable, control: ControlFolder) -> None:
    """What is left to do once a write has ended; may be done again."""
    replacing = table.timeline.find(control.instant, Action.REPLACE_COMMIT)
    if replacing is not None and not replacing.pending:
        retire_old_partitions(table, control, replacing)
    sweep_control_folder(table.storage, control)


def roll_back(table: HudiTable, failed: Instant) -> None:
    """Undo one pending write."""
    if failed.action is Action.DELTA_COMMIT:
        raise UnsupportedTableError(f"{failed} is of a merge-on-read table", instant=failed.time)
    plan = _plan(table, failed)
    time = next_time(table.clock, table.config, table.timeline.newest_time)
    requested = Instant(time=time, action=Action.ROLLBACK, state=State.REQUESTED)
    table.storage.put_if_absent(instant_file(requested), plan.to_bytes())
    _execute(table, requested, plan)


def _plan(table: HudiTable, failed: Instant) -> RollbackPlan:
    """One request for every file that was marked, whether it came to be or not."""
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


def _absolute(table: HudiTable, path: str) -> str:
    # Hudi's plans have a local path without a scheme.
    return f"{table.storage.url.removeprefix('file://')}/{path}"


def _relative(table: HudiTable, plan_path: str, absolute: str) -> str:
    """A path of a plan, which any writer may have written, as one inside of this table."""
    root = _absolute(table, "")
    spellings = (root, f"file:{root}", f"file://{root}", root.replace("s3://", "s3a://", 1))
    for spelling in (*spellings, root.replace("s3a://", "s3://", 1)):
        if absolute.startswith(spelling):
            relative = absolute[len(spelling) :]
            if problem_with(relative) is None:
                return relative
    raise CorruptTableError(
        f"{plan_path} wants to delete {absolute!r}, which does not lie in the table", path=plan_path
    )


def _execute(table: HudiTable, rollback: Instant, plan: RollbackPlan) -> None:
    storage, started = table.storage, table.clock.elapsed()
    plan_path = instant_file(replace(rollback, state=State.REQUESTED))
    victims = [
        _relative(table, plan_path, path)
        for request in plan.rollback_requests
        for path in request.files_to_be_deleted
    ]
    inflight = replace(rollback, state=State.INFLIGHT)
    with contextlib.suppress(AlreadyExistsError):  # an earlier execution of this plan came as far
        storage.put_if_absent(instant_file(inflight), b"")
    _discard_staged(table, plan)
    for path in victims:
        storage.delete(path)
    failed = plan.instant_to_rollback
    for state in (State.INFLIGHT, State.REQUESTED):
        storage.delete(instant_file(_instant_of(failed, state)))
    metadata = RollbackMetadata.of_plan(
        plan,
        rollback_instant=rollback.time,
        time_taken_in_millis=int((table.clock.elapsed() - started) * 1000),
    )
    table.reload()
    completion = next_time(table.clock, table.config, max(table.timeline.newest_time, rollback.time))
    done = replace(rollback, state=State.COMPLETED, completion=completion)
    storage.put_if_absent(instant_file(done), metadata.to_bytes())
    storage.delete_tree(marker_folder(failed.commit_time))
    table.reload()


def _discard_staged(table: HudiTable, plan: RollbackPlan) -> None:
    """Undo what lies in the write's control folder, before its markers go: they say where it is."""
    for control in control_folders(table.storage):
        if control.instant == plan.instant_to_rollback.commit_time:
            restore_properties(table, control)
            sweep_control_folder(table.storage, control)


def _instant_of(info: InstantInfo, state: State) -> Instant:
    return Instant(time=InstantTime(info.commit_time), action=Action(info.action), state=state)


def _finish(table: HudiTable, rollback: Instant) -> None:
    """Carry out a rollback that somebody began."""
    path = instant_file(replace(rollback, state=State.REQUESTED))
    plan = RollbackPlan.from_bytes(table.read(path), path=path)
    _execute(table, rollback, plan)
