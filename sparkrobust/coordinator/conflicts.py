"""Whether what a write was planned from is still what the table is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice

from sparkrobust.coordinator.heartbeat import living
from sparkrobust.coordinator.table import HudiTable
from sparkrobust.core.conflicts import (
    Begun,
    Conflict,
    FileGroup,
    Taken,
    Work,
    completed_candidates,
    find_conflicts,
    pending_candidates,
    work_of,
)
from sparkrobust.core.instant import Action, Instant, InstantTime, State
from sparkrobust.core.names import WRITER, ControlFolder, instant_file
from sparkrobust.core.timeline import Timeline
from sparkrobust.core.write_status import WriteStat
from sparkrobust.errors import ConflictError, RobustWriteError
from sparkrobust.formats.commit_metadata import CommitMetadata, ReplaceCommitMetadata
from sparkrobust.storage.contract import NotFoundError

SERVICE_CONFLICT = "conflict-with-service"
"""The kind of a conflict that trying again does not get past: the table service has to be run, or ended."""
TRY_AGAIN = (
    "a retry helps: it starts from the table as it is now; "
    "hoodie.write.num.retries.on.conflict.failures lets a write try again by itself"
)
_SHOWN = 3
"""Of each conflict's file groups, and of the conflicts."""


@dataclass(frozen=True, kw_only=True)
class Beside:
    """Other writes, which may be archived while a write runs since they were requested before it."""

    completed: tuple[Instant, ...] = ()
    """Since it was planned; the table keeps what they say."""
    pending: frozenset[str] = frozenset()
    """What became of them is not known yet."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a write is about to do, and what it was planned from."""

    folder: ControlFolder
    groups: frozenset[FileGroup] | None
    """The file groups that it changes; ``None``: all that there are."""
    begun: Begun
    seen: frozenset[InstantTime] | None = None
    """The completed writes that it was planned with, where its driver is the one that planned it."""
    beside: Beside | None = None
    """Who had written, or was about to, when it was requested; for another driver: what is archived."""
    made_from: Mapping[FileGroup, str] = field(default_factory=dict)
    """Of the file groups that were done again while it ran, the instants of the files that they come from."""

    @classmethod
    def at(cls, folder: ControlFolder, timeline: Timeline) -> Plan:
        """Of a write that is planned by this timeline; of which groups comes out later."""
        return cls(folder=folder, groups=None, begun=Begun.at(timeline), seen=timeline.completed_times)


def group_of(stat: WriteStat) -> FileGroup:
    """The file group that a file belongs to."""
    return stat.partition_path or "", stat.file_id


def refuse_while_restoring(table: HudiTable) -> None:
    """``ConflictError`` if a restore was pending at the last reload.

    It takes completed commits back, one after the other, by rollbacks of its own: until it is completed
    nothing may be written, and what of all that is pending is not its own nobody else can tell.
    """
    for instant in table.timeline.pending:
        if instant.action is Action.RESTORE:
            raise ConflictError(
                f"{table.storage.url} is being restored to an earlier state: {instant} is not completed",
                instant=instant.time,
                path=table.storage.url,
                kind=SERVICE_CONFLICT,
                hint="wait until it is; if who restored the table is gone, restore it with Hudi to the same "
                "savepoint again, which finishes it",
            )


def refuse_conflicts(table: HudiTable, plan: Plan) -> None:
    """``ConflictError`` if another instant stands in the way; to be called under the lock, after a reload."""
    refuse_while_restoring(table)
    _refuse(table, plan, conflicts_of(table, plan))


def conflicts_of(table: HudiTable, plan: Plan) -> list[Conflict]:
    """What stands in the way, as of the last reload unless a table service has ended since."""
    return _in_the_way(table, plan, lambda: _candidates(table, plan))


def refuse_conflicts_early(table: HudiTable, plan: Plan) -> None:
    """The same before anything was written, and without the lock.

    A write that began before this one and lives goes first, so what it says that it is going to change
    stands in the way as well.
    """
    table.reload()
    refuse_while_restoring(table)
    alive = living(table)

    def candidates() -> list[Instant]:
        running = [
            other
            for other in table.timeline.pending
            if work_of(other) is Work.INGESTION and other.time < plan.folder.instant and other.time in alive
        ]
        return [*_candidates(table, plan), *running]

    _refuse(table, plan, _in_the_way(table, plan, candidates))


def completed_since(table: HudiTable, plan: Plan) -> list[Instant]:
    """The completed writes that a plan can't have known."""
    timeline, seen = table.timeline, plan.seen
    beside = plan.beside.completed if plan.beside else ()
    # One before the start may be on the timeline all the same, by a savepoint.
    past = (other for other in beside if timeline.is_past(other.time))
    archived = [other for other in past if other.time not in timeline.completed_times]
    if seen is None:
        strategy, writes = table.coordination.strategy, timeline.completed_writes
        return [*archived, *completed_candidates(strategy, writes, plan.begun)]
    # Whatever clocks say: what was not there is not known.  And what was there had been completed by then, so
    # only one that was pending too is asked about: by its time, which may be another action's.
    unseen = timeline.completed_times - seen
    pending = timeline.completed_at(seen & plan.begun.pending)
    return [
        *archived,
        *completed_candidates(table.coordination.strategy, pending, plan.begun),
        *timeline.completed_at(unseen),
    ]


def _candidates(table: HudiTable, plan: Plan) -> list[Instant]:
    pending = pending_candidates(table.timeline, Work.INGESTION, plan.folder.instant)
    return [*completed_since(table, plan), *pending]


def _in_the_way(table: HudiTable, plan: Plan, candidates: Callable[[], Iterable[Instant]]) -> list[Conflict]:
    while True:
        found = [_taken(table, other) for other in candidates()]
        known = [one for one in found if one is not None]
        if len(known) == len(found):
            return find_conflicts(plan.groups, known, plan.made_from)
        table.reload()  # a table service has ended: if it was completed, it is found as a write now


def _taken(table: HudiTable, other: Instant) -> Taken | None:
    """What an instant has changed, or is going to; ``None`` if it has ended since the last reload."""
    if work_of(other) is not Work.INGESTION:
        groups = table.groups_in_plan(other)
        by = f"a pending {other.action.value}"
        return None if groups is None else Taken(instant=other, groups=frozenset(groups), by=by)
    return _of_commit(other, _workload(table, other) if other.pending else table.commit(other))


def _workload(table: HudiTable, pending: Instant) -> CommitMetadata:
    """What a write says that it is going to do: nothing, if it was requested only, or is a bulk insert."""
    path = instant_file(replace(pending, state=State.INFLIGHT))
    try:
        return CommitMetadata.from_bytes(table.storage.read(path), path=path)
    except NotFoundError:
        return CommitMetadata()


def groups_of(metadata: CommitMetadata) -> frozenset[FileGroup]:
    """The file groups that a write has changed, made, or taken away."""
    groups = {group_of(stat) for stat in metadata.write_stats if stat.file_id}
    if isinstance(metadata, ReplaceCommitMetadata):
        replaced = metadata.partition_to_replace_file_ids.items()
        groups |= {(partition, file_id) for partition, ids in replaced for file_id in ids}
    return frozenset(groups)


def _of_commit(instant: Instant, metadata: CommitMetadata) -> Taken:
    by = metadata.operation_type.value.lower() if metadata.operation_type else "a write"
    if WRITER in metadata.extra_metadata:
        by += f" by {metadata.extra_metadata[WRITER]}"
    return Taken(instant=instant, groups=groups_of(metadata), by=by)


def _refuse(table: HudiTable, plan: Plan, conflicts: list[Conflict]) -> None:
    if not conflicts:
        return
    services = [one for one in conflicts if work_of(one.other.instant) is not Work.INGESTION]
    more = f", and {len(conflicts) - _SHOWN} more" if len(conflicts) > _SHOWN else ""
    told = "; ".join(_told(one) for one in islice(conflicts, _SHOWN)) + more
    raise _error(table, plan, told, with_service=bool(services))


def conflict(
    table: HudiTable, plan: Plan, other: Instant, metadata: CommitMetadata, what_it_did: str
) -> ConflictError:
    """The error for a completed write that stands in the way by something else than a file group."""
    return _error(
        table, plan, f"{other}, {_of_commit(other, metadata).by}, {what_it_did}", with_service=False
    )


def table_changed(table: HudiTable, plan: Plan, what: str) -> ConflictError:
    """The error for a table that is another one than the write was planned for."""
    return _error(table, plan, what, with_service=False)


def _error(table: HudiTable, plan: Plan, told: str, *, with_service: bool) -> ConflictError:
    return ConflictError(
        f"the write {plan.folder.instant} was planned without knowing what others do: {told}",
        instant=plan.folder.instant,
        path=table.storage.url,
        kind=SERVICE_CONFLICT if with_service else "conflict",
        hint="a retry helps when the table service is completed or rolled back"
        if with_service
        else TRY_AGAIN,
    )


def _told(conflict: Conflict) -> str:
    groups = [f"{partition or '.'}/{file_id}" for partition, file_id in conflict.groups]
    if not groups:
        return f"{conflict.other.instant}, {conflict.other.by}, changes the table"
    shown = ", ".join(groups[:_SHOWN]) + (", …" if len(groups) > _SHOWN else "")
    count = f"{len(groups)} file group{'s' if len(groups) > 1 else ''}"
    return f"{conflict.other.instant}, {conflict.other.by}, changes {count} that it changes too: {shown}"


def read_ahead(table: HudiTable, plan: Plan) -> None:
    """What the others have done is remembered: who has the lock need not read it, while more others wait."""
    for other in completed_since(table, plan):
        with suppress(RobustWriteError):  # who needs it is told
            table.commit(other)
