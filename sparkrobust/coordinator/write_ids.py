"""Whether another run of the same job has committed what this one writes."""

from __future__ import annotations

import contextlib
from collections.abc import Set

from sparkrobust.coordinator.table import HudiTable
from sparkrobust.core.instant import Instant, InstantTime
from sparkrobust.core.markers import Terms
from sparkrobust.core.names import WRITE_ID
from sparkrobust.errors import RobustWriteError


class WrittenEarlier(Exception):
    """A write of the same id is durable; this one was not decided, and is to be aborted."""

    def __init__(self, instant: Instant) -> None:
        super().__init__(f"{instant} has the same write id")
        self.instant = instant


def find_write(table: HudiTable, write_id: str, besides: Set[InstantTime] = frozenset()) -> Instant | None:
    """The completed write of this id, if the active timeline has one, besides those of which it is known."""
    for instant in reversed(table.timeline.completed_at(table.timeline.completed_times - besides)):
        if table.commit(instant).extra_metadata.get(WRITE_ID) == write_id:
            return instant
    return None


def refuse_if_written(table: HudiTable, terms: Terms, besides: Set[InstantTime] = frozenset()) -> None:
    """``WrittenEarlier`` if another run was faster than this one, by a write besides these."""
    name = terms.extra.get(WRITE_ID)
    found = None if name is None else find_write(table, name, besides)
    if found is not None:
        raise WrittenEarlier(found)


def asked_beforehand(table: HudiTable, terms: Terms) -> Set[InstantTime]:
    """The completed writes that are known to be none of this job's."""
    with contextlib.suppress(RobustWriteError):  # some may have been archived; it is asked again
        refuse_if_written(table, terms)
        return table.timeline.completed_times
    return frozenset()
