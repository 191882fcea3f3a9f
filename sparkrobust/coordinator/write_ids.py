"""Whether another run of the same job has committed what this one writes."""

from __future__ import annotations

import contextlib
from collections.abc import Set

from sparkrobust.coordinator.history import find_archived
from sparkrobust.coordinator.table import HudiTable
from sparkrobust.core.instant import InstantTime
from sparkrobust.core.markers import Terms
from sparkrobust.core.names import WRITE_ID, instant_file
from sparkrobust.errors import CorruptTableError, RobustWriteError
from sparkrobust.formats.commit_metadata import CompletedWrite


class WrittenEarlier(Exception):
    """A write of the same id is durable; this one was not decided, and is to be aborted."""

    def __init__(self, write: CompletedWrite) -> None:
        super().__init__(f"{write.instant} has the same write id")
        self.write = write


def find_write(
    table: HudiTable, write_id: str, besides: Set[InstantTime] = frozenset()
) -> CompletedWrite | None:
    """The completed write of this id, if there is one, besides those on the timeline of which it is known.

    First comes the active timeline as of the last reload, then the history as of now: so what is archived
    meanwhile is not missed.
    """
    return _find_active(table, write_id, besides) or find_archived(table, write_id)


def _find_active(table: HudiTable, write_id: str, besides: Set[InstantTime]) -> CompletedWrite | None:
    for instant in reversed(table.timeline.completed_at(table.timeline.completed_times - besides)):
        try:
            write = table.completed(instant)
        except CorruptTableError:
            if table.storage.stat(instant_file(instant)) is not None:
                raise
            continue  # it was archived since the last reload: the history has it
        if write.metadata.extra_metadata.get(WRITE_ID) == write_id:
            return write
    return None


def refuse_if_written(table: HudiTable, terms: Terms, besides: Set[InstantTime] = frozenset()) -> None:
    """``WrittenEarlier`` if another run was faster than this one, by a write besides these."""
    name = terms.extra.get(WRITE_ID)
    found = None if name is None else find_write(table, name, besides)
    if found is not None:
        raise WrittenEarlier(found)


def asked_beforehand(table: HudiTable, terms: Terms) -> Set[InstantTime]:
    """The completed writes that are known to be none of this job's."""
    with contextlib.suppress(RobustWriteError):  # the store may be away for a moment; it is asked again
        refuse_if_written(table, terms)
        return table.timeline.completed_times
    return frozenset()
