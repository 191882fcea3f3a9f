"""Whether the table is still what a write was planned for, as far as no file group tells.

A write is held against others by the file groups that both change.  What concerns all groups is looked at
here, under the lock: the table's keys, partitions and columns may have become others, and a write that this
one was planned from may have been taken back.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from typing import TypeAlias

from sparkrobust.coordinator.conflicts import Plan, completed_since, table_changed
from sparkrobust.coordinator.table import HudiTable
from sparkrobust.core.instant import Instant
from sparkrobust.core.markers import Terms
from sparkrobust.core.names import BaseFileName
from sparkrobust.core.table_config import TableConfig
from sparkrobust.core.write_status import OperationType, WriteStat
from sparkrobust.errors import CommitOutcome, ConflictError
from sparkrobust.formats.schema import TableSchema

Schema: TypeAlias = "tuple[str, str]"
"""As Avro's JSON, and where it stands."""


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
