"""Whether the table is still what a write was planned for, as far as no file group tells.

A write is held against others by the file groups that both change.  What concerns all groups is looked at
here, under the lock: the table's keys, partitions and columns may have become others, and a write that this
one was planned from may have been taken back.

To plan a write may take long: between the look at the timeline and that at the files Spark makes the rows.
Meanwhile a cleaner may have taken away files of which others have made newer ones, so that there seem to be
none of their group; and an archiver what those others committed.  Of what was requested before a write it
may do so even while that runs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import TypeAlias

from sparkrobust.coordinator.conflicts import (
    TRY_AGAIN,
    Beside,
    Plan,
    completed_since,
    group_of,
    groups_of,
    table_changed,
)
from sparkrobust.coordinator.history import archived_writes
from sparkrobust.coordinator.table import ARCHIVED, HudiTable
from sparkrobust.core.conflicts import work_of
from sparkrobust.core.instant import Instant, InstantTime
from sparkrobust.core.markers import Terms
from sparkrobust.core.names import BaseFileName, instant_file
from sparkrobust.core.table_config import TableConfig
from sparkrobust.core.write_status import NEW_FILE_GROUP, OperationType, WriteStat
from sparkrobust.errors import (
    CommitOutcome,
    ConflictError,
    CorruptTableError,
    FileGoneError,
    RobustWriteError,
)
from sparkrobust.formats.commit_metadata import CommitMetadata
from sparkrobust.formats.schema import TableSchema

Schema: TypeAlias = "tuple[str, str]"
"""As Avro's JSON, and where it stands."""
_NEVER = "~"
"""After all times."""
Found: TypeAlias = "Mapping[str, AbstractSet[str]]"
"""Partition → the ids of the file groups that a write has found there, where it looked for its keys."""


def look_beside(table: HudiTable, plan: Plan, found: Found) -> Beside:
    """What others have done since a write was planned, by the first look at the timeline since its request.

    Raises
    ------
    ConflictError
        The write can't have seen all that was there; or nobody can tell any more.
    """
    plan = with_archived(table, plan)
    others, since = completed_since(table, plan), list[CommitMetadata]()
    for other in others:
        try:
            since.append(table.commit(other))
        except CorruptTableError as error:
            if table.storage.stat(instant_file(other)) is not None:
                raise
            raise _may_be_archived(table, plan) from error
        table.keep_commit(other, since[-1])
    stats = (stat for metadata in since for stat in metadata.write_stats)
    new = {group_of(stat) for stat in stats if stat.prev_commit in (None, NEW_FILE_GROUP)}
    for partition, file_id in frozenset().union(*map(groups_of, since)) - new:
        if partition in found and file_id not in found[partition]:
            told = f"no file was left of the file group {partition or '.'}/{file_id}, which they changed"
            raise table_changed(table, plan, told)
    changing = (one.time for one in table.timeline.pending if work_of(one) is not None)
    earlier = (time for time in changing if time < plan.folder.instant)
    return Beside(completed=tuple(others), pending=frozenset(earlier))


def with_archived(table: HudiTable, plan: Plan) -> Plan:
    """The plan with what it is to be held against and the timeline shows no more, as of the last reload.

    Raises
    ------
    ConflictError
        Nobody can tell, as the archived timeline can't be read.
    """
    start, begun = table.timeline.start, plan.begun
    if start is None:
        return plan
    known = plan.beside or Beside(pending=begun.pending)
    past = {time for time in known.pending if time < start}
    gone = past - {instant.time for instant in table.timeline.instants} if past else past
    moved = plan.beside is None and start > begun.newest
    if not (gone or moved):
        return plan
    try:
        archived = archived_writes(table, begun.newest if moved else _NEVER, gone)
    except CorruptTableError as error:
        raise _may_be_archived(table, plan) from error
    for write in archived:
        table.keep_commit(write.instant, write.metadata)
    completed = (*known.completed, *(write.instant for write in archived))
    # What is not there was rolled back.
    return replace(plan, beside=Beside(completed=completed, pending=known.pending - gone))


def _may_be_archived(table: HudiTable, plan: Plan) -> ConflictError:
    return table_changed(table, plan, "what they have committed meanwhile may be archived by now")


def overtaken(table: HudiTable, seen: AbstractSet[InstantTime], gone: FileGoneError) -> ConflictError | None:
    """What a file that is gone comes to where others have written since a write was planned with it.

    Parameters
    ----------
    seen
        The completed writes that it was planned with.
    """
    if gone.kind == ARCHIVED:
        return ConflictError(
            f"the timeline has moved on since this write was planned: {gone}", path=gone.path, hint=TRY_AGAIN
        )
    with suppress(RobustWriteError):  # who can't look says what he knows
        table.reload()
        timeline = table.timeline
        since = [table.commit(other) for other in timeline.completed_at(timeline.completed_times - seen)]
        partition, _, text = (gone.path or "").rpartition("/")
        name = BaseFileName.parse(text)
        if any(name is None or (partition, name.file_id) in groups_of(metadata) for metadata in since):
            return ConflictError(
                f"others have written since this write was planned, and a cleaner was faster than it: {gone}",
                path=gone.path,
                hint=TRY_AGAIN,
            )
    return None


def refuse_if_changed(
    table: HudiTable, plan: Plan, terms: Terms, stats: Collection[WriteStat], before: TableConfig | None
) -> None:
    """``ConflictError`` if the table is another one; to be called under the lock, after a reload of all.

    Parameters
    ----------
    stats
        The files that the write has made.
    before
        What the properties said when it was planned, where its driver is the one that planned it.
    """
    _refuse_if_past(table, plan)
    _refuse_what_was_taken_back(table, plan, stats)
    if terms.replaces_table:
        return  # of what was there nothing stays
    if before is not None and _layout(before) != _layout(table.config):
        raise table_changed(table, plan, "the table has other keys, partitions or ordering fields by now")
    others = completed_since(table, plan)
    for other in others if before is None else ():
        if table.commit(other).operation_type is OperationType.INSERT_OVERWRITE_TABLE:
            raise table_changed(table, plan, f"{other} replaced the table")
    if others:
        _refuse_other_columns(table, plan, terms, others)


def _refuse_if_past(table: HudiTable, plan: Plan) -> None:
    """The files of so old a write would count as committed one by one, as they appear."""
    time = plan.folder.instant
    if table.timeline.is_past(time):
        raise ConflictError(
            f"the table's timeline begins after {time} by now: a later write was completed first",
            instant=time,
            path=table.storage.url,
            outcome=CommitOutcome.RETRYABLE,
            hint="write again",
        )


def _refuse_what_was_taken_back(table: HudiTable, plan: Plan, stats: Collection[WriteStat]) -> None:
    """The rows of a write that is gone would come back by one that was planned from it."""
    timeline = table.timeline
    gone = {
        time for time in (plan.seen or frozenset()) - timeline.completed_times if not timeline.is_past(time)
    }
    bases = (BaseFileName.parse(stat.prev_base_file or "") for stat in stats)
    gone |= {base.instant for base in bases if base and not timeline.is_committed(base.instant)}
    if gone:
        raise table_changed(table, plan, f"{min(gone)}, which it was planned from, was rolled back")


def _refuse_other_columns(table: HudiTable, plan: Plan, terms: Terms, others: Collection[Instant]) -> None:
    """The newest write says which columns the table has, so one that lacks another's would take them away."""
    now = table.schema_text()
    if have_same_columns(now, (terms.schema, plan.folder.gate)):
        return
    if not have_same_columns(now, table.schema_text(besides={other.time for other in others})):
        raise table_changed(table, plan, "the table has other columns by now")
    # It changes them itself, which counts only if it is the newest.
    later = max(others, key=lambda other: other.time)
    if later.time > plan.folder.instant:
        raise table_changed(table, plan, f"{later} is newer, and has not the columns that it adds")


def _layout(config: TableConfig) -> tuple[object, ...]:
    """What every row of a table goes by."""
    return (
        *(config.key_fields, config.partition_fields, config.ordering_fields, config.key_generator),
        *(config.merge_mode, config.hive_style, config.url_encoded),
    )


def have_same_columns(one: Schema | None, other: Schema | None) -> bool:
    """Whether two schemas are of the same columns, however they are written down."""
    if one is None or other is None:
        return one is other
    return one[0] == other[0] or _arrow(*one) == _arrow(*other)  # the same text, as nearly always


@lru_cache(64)
def _arrow(text: str, path: str) -> object:
    return TableSchema.of_avro(text, path=path).arrow
