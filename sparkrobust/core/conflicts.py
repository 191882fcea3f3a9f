"""Which instants a write is held against before it commits, and what stands in its way (RFC-71).

Two writes conflict that change the same file group, none of which saw what the other did.  Candidates are
the writes that were completed since this one was planned, by one of two strategies, and what is pending,
by a table of who gives way to whom.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from sparkrobust.core.instant import Action, Instant, InstantTime, State
from sparkrobust.core.timeline import Timeline

FileGroup: TypeAlias = "tuple[str, str]"
"""Its partition and its id."""


class Strategy(Enum):
    """How the writes are found that were completed meanwhile; named as Hudi's classes are."""

    START_TIME = "SimpleConcurrentFileWritesConflictResolutionStrategy"
    COMPLETION_TIME = "EndTimestampBasedConcurrentFileWritesConflictResolutionStrategy"


@dataclass(frozen=True, kw_only=True)
class Begun:
    """What the timeline said when a write was planned."""

    newest: str
    """The largest time on it, of request or of completion."""
    pending: frozenset[str]
    """The instants that were not completed."""

    @classmethod
    def at(cls, timeline: Timeline) -> Begun:
        return cls(newest=timeline.newest_time, pending=frozenset(i.time for i in timeline.pending))


NOTHING = Begun(newest="", pending=frozenset())
"""Of a plan that knew nothing: all that is on the timeline came after it."""


def completed_candidates(strategy: Strategy, completed: Iterable[Instant], begun: Begun) -> Iterator[Instant]:
    """Of the writes that are completed now those that a plan made from ``begun`` can't have known."""
    for other in completed:
        if strategy is Strategy.START_TIME:
            unknown = other.time > begun.newest or other.time in begun.pending
        else:
            unknown = (other.completion or other.time) > begun.newest
        if unknown:
            yield other


# -- what is pending ---------------------------------------------------------------------------------------


class Work(Enum):
    """What an instant does to file groups."""

    INGESTION = "ingestion"
    CLUSTERING = "clustering"
    COMPACTION = "compaction"


_WORK = {
    Action.COMMIT: Work.INGESTION,
    Action.DELTA_COMMIT: Work.INGESTION,
    Action.REPLACE_COMMIT: Work.INGESTION,
    Action.CLUSTERING: Work.CLUSTERING,
    Action.COMPACTION: Work.COMPACTION,
    Action.LOG_COMPACTION: Work.COMPACTION,
}


def work_of(instant: Instant) -> Work | None:
    """What a pending instant does to file groups, if anything."""
    return _WORK.get(instant.action)


class Held(Enum):
    """Whether a write is held against what is pending."""

    NO = "no"
    YES = "yes"
    IF_UPDATES_ALLOWED = "if a write may update what is being clustered"
    UNLESS_UPDATES_ALLOWED = "unless a write may update what is being clustered"
    NEVER_ASKED = "compactions are held against others when they are scheduled"


PENDING: Mapping[tuple[Work, Work], Held] = {
    (Work.INGESTION, Work.INGESTION): Held.NO,
    (Work.INGESTION, Work.CLUSTERING): Held.UNLESS_UPDATES_ALLOWED,
    (Work.INGESTION, Work.COMPACTION): Held.YES,
    (Work.CLUSTERING, Work.INGESTION): Held.IF_UPDATES_ALLOWED,
    (Work.CLUSTERING, Work.CLUSTERING): Held.NO,
    (Work.CLUSTERING, Work.COMPACTION): Held.NO,
    (Work.COMPACTION, Work.INGESTION): Held.NEVER_ASKED,
    (Work.COMPACTION, Work.CLUSTERING): Held.NEVER_ASKED,
    (Work.COMPACTION, Work.COMPACTION): Held.NEVER_ASKED,
}
"""RFC-71's table: of who commits, and what is pending then.

Where a write may update what is being clustered the clustering gives way, and looks for the writes itself.
"""


def is_held_against(mine: Work, pending: Work, *, updates_allowed: bool) -> bool:
    """Whether work of this kind that commits has to look at pending work of that kind."""
    held = PENDING[mine, pending]
    if held is Held.NEVER_ASKED:
        raise ValueError(f"a {mine.value} is held against others when it is scheduled, not when it commits")
    if held is Held.IF_UPDATES_ALLOWED:
        return updates_allowed
    if held is Held.UNLESS_UPDATES_ALLOWED:
        return not updates_allowed
    return held is Held.YES


def pending_candidates(
    timeline: Timeline, mine: Work, me: InstantTime, *, updates_allowed: bool = False
) -> Iterator[Instant]:
    """The pending instants that work of this kind is held against when it commits."""
    for other in timeline.pending:
        work = work_of(other)
        if work and other.time != me and is_held_against(mine, work, updates_allowed=updates_allowed):
            yield other


# -- what stands in the way --------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Taken:
    """The file groups that an instant has changed, or is going to."""

    instant: Instant
    groups: frozenset[FileGroup]
    by: str = ""
    """What it was, and whose, as far as it says so."""


@dataclass(frozen=True, kw_only=True)
class Conflict:
    """Another instant that stands in the way."""

    other: Taken
    groups: tuple[FileGroup, ...]
    """The file groups that both change; none where one of them replaces the whole table."""


def find_conflicts(
    mine: AbstractSet[FileGroup] | None, others: Iterable[Taken], made_from: Mapping[FileGroup, str]
) -> list[Conflict]:
    """Everything that stands in the way of a write that changes these file groups, ``None``: all of them.

    Parameters
    ----------
    made_from
        The file groups whose files were made again while the write ran, with the instants of the files that
        they were made from: a group's versions come one after the other, so they hold what was before.
    """
    places = None if mine is None else {_place(group): group for group in mine}
    found = []
    for other in others:
        if places is None:
            found.append(Conflict(other=other, groups=()))
            continue
        theirs: AbstractSet[FileGroup] = other.groups
        if made_from and is_plain_write(other.instant):
            theirs = {group for group in theirs if other.instant.time > made_from.get(group, "")}
        if both := places.keys() & set(map(_place, theirs)):
            found.append(Conflict(other=other, groups=tuple(sorted(places[place] for place in both))))
    return found


def is_plain_write(other: Instant) -> bool:
    """Whether an instant has added versions to file groups, and has taken none away."""
    return other.state is State.COMPLETED and other.action is Action.COMMIT


_BUCKET = re.compile(r"[0-9]{8}-")


def _place(group: FileGroup) -> FileGroup:
    """Where the rows of a file group belong: with a bucket index its bucket, whoever made a group for it.

    Such an index is the writers' affair and nowhere written down, but the ids tell: a bucket's number in
    eight digits takes the place of a random id's first eight.  That two random ones have the same eight, all
    of them digits, is not to be expected, and would make one write try again.
    """
    partition, file_id = group
    bucket = _BUCKET.match(file_id)
    return (partition, bucket.group()) if bucket else group
