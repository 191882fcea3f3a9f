"""Several writers of one table, and the table services that others have scheduled."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fault_injection.service_plans import plan_of
from sparkrobust.coordinator.coordination import Coordination
from sparkrobust.coordinator.table import HudiTable
from sparkrobust.coordinator.times import next_time
from sparkrobust.core.conflicts import FileGroup
from sparkrobust.core.instant import Action, Instant, State
from sparkrobust.core.names import BaseFileName, instant_file, joined
from sparkrobust.core.write_status import OperationType, WriteStat
from sparkrobust.formats.commit_metadata import CommitMetadata, ReplaceCommitMetadata
from sparkrobust.formats.rollback import InstantInfo, RollbackMetadata, RollbackPlan
from sparkrobust.options import FailedWritesPolicy
from sparkrobust.storage.locks import FileSystemLock
from tests.coordinator.writes import SCHEMA, begun

LOCK = ".hoodie/lock"


def writer(table: HudiTable, *, expire_seconds: float | None = None, **more: Any) -> HudiTable:
    """The table as one of several writers has it."""
    lock = FileSystemLock(table.storage, LOCK, expire_seconds=expire_seconds, clock=table.clock)
    chosen = {"lock_seconds": 0, "failed_writes": FailedWritesPolicy.LAZY, **more}
    coordination = Coordination(lock=lock, **chosen)
    return HudiTable.open(table.storage, table.clock, table.ids, coordination=coordination)


def clustering(
    table: HudiTable,
    group: str = "p9/none",
    *,
    removable: bool = False,
    inflight: bool = False,
    action: Action = Action.CLUSTERING,
) -> Instant:
    """A pending clustering of a file group, as any writer may have scheduled it, by either of its names."""
    plan = plan_of(Action.CLUSTERING, _group(group), removable=removable)
    return _scheduled(table, action, plan, inflight=inflight)


def rollback_of(table: HudiTable, target: Instant) -> Instant:
    """A rollback that any writer may have planned."""
    info = InstantInfo(commit_time=target.time, action=target.action.value)
    plan = RollbackPlan(instant_to_rollback=info).to_bytes()
    return _scheduled(table, Action.ROLLBACK, plan, inflight=False)


def complete(table: HudiTable, rollback: Instant) -> None:
    """Who planned it, or another writer, says that it has carried a rollback out."""
    path = instant_file(replace(rollback, state=State.REQUESTED))
    plan = RollbackPlan.from_bytes(table.storage.read(path), path=path)
    done = RollbackMetadata.of_plan(plan, rollback_instant=rollback.time, time_taken_in_millis=1)
    table.reload()
    completion = next_time(table.clock, table.config, table.timeline.newest_time)
    found = replace(rollback, state=State.COMPLETED, completion=completion)
    table.storage.put_if_absent(instant_file(found), done.to_bytes())


def restore(table: HudiTable, *, inflight: bool = False) -> Instant:
    """A restore of Hudi's that is under way."""
    return _scheduled(table, Action.RESTORE, b"", inflight=inflight)


def end_restore(table: HudiTable, restore: Instant) -> None:
    done = replace(restore, state=State.COMPLETED, completion=restore.time)
    table.storage.put_if_absent(instant_file(done), b"")


def compaction(table: HudiTable, group: str, action: Action) -> Instant:
    return _scheduled(table, action, plan_of(action, _group(group)), inflight=False)


def _group(path: str) -> FileGroup:
    partition, _, file_id = path.rpartition("/")
    return partition, file_id


def _scheduled(table: HudiTable, action: Action, plan: bytes, *, inflight: bool) -> Instant:
    taken = begun(table)  # for its time
    taken.abort("only its time was wanted")
    found = Instant(time=taken.time, action=action, state=State.REQUESTED)
    table.storage.put_if_absent(instant_file(found), plan)
    if inflight:
        found = replace(found, state=State.INFLIGHT)
        table.storage.put_if_absent(instant_file(found), b"")
    return found


def begun_by_hudi(table: HudiTable, action: Action = Action.COMMIT) -> Instant:
    """A write of Hudi's, which shares the lock and knows of no decision."""
    table.reload()
    time = next_time(table.clock, table.config, table.timeline.newest_time)
    write = Instant(time=time, action=action, state=State.REQUESTED)
    table.storage.put_if_absent(instant_file(write), b"")
    table.storage.put_if_absent(instant_file(replace(write, state=State.INFLIGHT)), b"")
    return write


def committed_by_hudi(table: HudiTable, group: str, write: Instant | None = None) -> Instant:
    """It makes a new version of a file group, or another one that takes its place."""
    write = write or begun_by_hudi(table)
    partition, old = _group(group)
    replacing = write.action is Action.REPLACE_COMMIT
    file_id = f"{table.ids.uuid()}-0" if replacing else old
    path = joined(partition, str(BaseFileName(file_id=file_id, write_token="0-0-0", instant=write.time)))
    table.storage.put_if_absent(path, b"rows of Hudi's")
    stat = WriteStat(file_id=file_id, path=path, partition_path=partition, num_writes=1, prev_commit="before")
    said = CommitMetadata(
        partition_to_write_stats={partition: (stat,)},
        extra_metadata={"schema": SCHEMA},
        operation_type=OperationType.CLUSTER if replacing else OperationType.UPSERT,
    )
    if replacing:
        said = ReplaceCommitMetadata(**vars(said), partition_to_replace_file_ids={partition: (old,)})
    table.reload()
    completion = next_time(table.clock, table.config, table.timeline.newest_time)
    done = replace(write, state=State.COMPLETED, completion=completion)
    table.storage.put_if_absent(instant_file(done), said.to_bytes())
    return done
