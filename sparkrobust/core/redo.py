"""Which slots of a write are done again, since others have changed their file groups while it ran.

A write was planned from the table as it was then.  If all that came between are plain writes that began
before it, and what it goes by besides its file groups is checked when it commits, it is enough to make the
files of those groups again, from the newest ones: as if the write had begun only now.

Never from a write that began later: of a file group's files the one of the largest instant is read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from enum import Enum

from sparkrobust.core.conflicts import Conflict, FileGroup, is_plain_write
from sparkrobust.core.file_ids import Slot
from sparkrobust.core.instant import InstantTime
from sparkrobust.core.view import BaseFile
from sparkrobust.core.write_status import OperationType


class Reads(Enum):
    """What a write goes by besides the files that it rewrites."""

    NOTHING = "nothing"
    WHICH_KEYS_ARE_NEW = "which keys are new"
    """To the table: that is looked at again when it commits."""
    MORE = "more"
    """As a delete does: what it skips because the table has it not, another write may have inserted."""


_KEEPS_KEYS_APART = frozenset(
    (
        *(OperationType.UPSERT, OperationType.UPSERT_PREPPED),
        *(OperationType.DELETE, OperationType.DELETE_PREPPED),
        *(OperationType.CLUSTER, OperationType.COMPACT, OperationType.LOG_COMPACT),
    )
)
"""Operations that insert no key that the table has."""


@dataclass(frozen=True, kw_only=True)
class Since:
    """A write that was completed since another one was planned, as far as that one is concerned."""

    operation: OperationType | None
    same_schema: bool
    """It has the columns of that one, so nothing that it wrote is lost when its rows are read by them."""


def may_redo(me: InstantTime, reads: Reads, conflicts: Collection[Conflict], since: Iterable[Since]) -> bool:
    """Whether a write gets past what stands in its way by doing some of its slots again.

    Parameters
    ----------
    since
        All writes that were completed since it was planned, in its way or not.
    """
    if reads is Reads.MORE or not all(_came_before(one, me) for one in conflicts):
        return False
    for other in since:
        if not other.same_schema:
            return False
        if reads is Reads.WHICH_KEYS_ARE_NEW and other.operation not in _KEEPS_KEYS_APART:
            # A key that the write updates may stand in a second place by now, where it would not be updated.
            return False
    return True


def _came_before(conflict: Conflict, me: InstantTime) -> bool:
    other = conflict.other.instant
    return bool(conflict.groups) and is_plain_write(other) and other.time < me


def in_place(
    slots: Sequence[Slot],
    superseded: AbstractSet[int],
    conflicts: Collection[Conflict],
    newest: Mapping[FileGroup, BaseFile],
) -> dict[int, Slot]:
    """By number, for each slot whose file group others have changed the one that is done in its place.

    Parameters
    ----------
    slots
        All of the write so far.
    superseded
        Those of them that others were done in place of before.
    newest
        The newest file of each file group in question.

    Returns
    -------
    Nothing where that would not do for each of the conflicts: where a group's newest file is not what the
    last of the others wrote, or a group is new.
    """
    changed: dict[FileGroup, str] = {}
    for conflict in conflicts:
        for group in conflict.groups:
            changed[group] = max(changed.get(group, ""), conflict.other.instant.time)
    found: dict[int, Slot] = {}
    for slot in slots:
        group = slot.partition, slot.prefix
        if slot.base is None or slot.index in superseded or group not in changed:
            continue
        base = newest.get(group)
        if base is not None and base.name.instant == changed[group]:
            found[slot.index] = replace(slot, index=len(slots) + len(found), base=base)
    return found if len(found) == len(changed) else {}


def done_last(slot: int, superseded: Mapping[int, int]) -> int:
    """The slot that was done last for what this one was planned for."""
    while slot in superseded:
        slot = superseded[slot]
    return slot
