"""The timeline as a value, and what may be concluded from it.

A base file counts as committed when its instant is complete on the active timeline, or is older
than the timeline's start: instants that old were archived, and archiving happens only to what was
complete.  So a stray file becomes data once the timeline has moved past it, which is why every
failed write must be cleaned away before that.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property, lru_cache

from sparkrobust.core.instant import WRITES, Action, Instant, InstantTime, State
from sparkrobust.core.names import NAMES_REMEMBERED, parse_instant_file

_FEW = 64
"""So many times that changed are looked for among all names; for more all is read anew."""


@dataclass(frozen=True)
class Timeline:
    """The active instants, each once, in its highest state, in order of their times."""

    instants: tuple[Instant, ...]

    @classmethod
    def of_names(cls, names: Iterable[str]) -> Timeline:
        """From the names in the timeline folder; files that are no instants are passed over."""
        highest: dict[str, tuple[tuple[int, str, str], Instant]] = {}
        for name in names:
            found = _ranked(name)
            if found is None:
                continue
            identity, rank, instant = found
            known = highest.get(identity)
            # Clustering and compaction change their action word on completion: by state the plan's
            # own word is kept only as long as the instant is pending.
            if known is None or rank > known[0]:
                highest[identity] = rank, instant
        return cls(_in_order(instant for _, instant in highest.values()))

    def renewed(self, names: Collection[str], changed: Iterable[str]) -> Timeline:
        """What ``of_names`` makes of these names, which but for some that came or went are this timeline's.

        A long timeline is looked at again and again, and hardly any of it is new.
        """
        times = {found[2].time for name in changed if (found := _ranked(name)) is not None}
        if not times:
            return self
        if len(times) > _FEW:
            return Timeline.of_names(names)
        beginnings = tuple(times)
        anew = Timeline.of_names(name for name in names if name.startswith(beginnings))
        instants = [instant for instant in self.instants if instant.time not in times]
        for instant in anew.instants:
            if instant.time in times:
                insort(instants, instant, key=_place)
        return Timeline(tuple(instants))

    def work_out(self) -> None:
        """Work out now what is going to be asked, at a moment when nobody waits for it."""
        _ = self.completed_times, self.pending, self.start, self.newest_time

    def having(self, instant: Instant) -> Timeline:
        """The same with this instant, in place of itself in an earlier state."""
        before = self.find(instant.time, instant.action)
        instants = [i for i in self.instants if i is not before]
        insort(instants, instant, key=_place)
        return Timeline(tuple(instants))

    @cached_property
    def completed_writes(self) -> tuple[Instant, ...]:
        return tuple(i for i in self.instants if i.state is State.COMPLETED and i.action in WRITES)

    @cached_property
    def pending(self) -> tuple[Instant, ...]:
        return tuple(i for i in self.instants if i.state is not State.COMPLETED)

    @cached_property
    def completed_times(self) -> frozenset[InstantTime]:
        """Those of the completed writes."""
        return frozenset(i.time for i in self.completed_writes)

    def completed_at(self, times: AbstractSet[str]) -> list[Instant]:
        """The completed writes of these times, in their order."""
        wanted = sorted(self.completed_times & times)
        return [
            i for time in wanted for i in self._at(time) if i.state is State.COMPLETED and i.action in WRITES
        ]

    @cached_property
    def start(self) -> InstantTime | None:
        """The first completed write that is not held back by a savepoint alone."""
        savepoints = {i.time for i in self.instants if i.action is Action.SAVEPOINT}
        return next((i.time for i in self.completed_writes if i.time not in savepoints), None)

    @cached_property
    def newest_time(self) -> str:
        """The largest time on the timeline, of request or of completion; ``""`` for an empty one."""
        if not self.instants:
            return ""
        return max(self.instants[-1].time, max(i.completion or "" for i in self.instants))

    @cached_property
    def latest_write(self) -> Instant | None:
        return self.completed_writes[-1] if self.completed_writes else None

    def is_committed(self, instant: str) -> bool:
        """Whether a base file of this instant is part of the table."""
        return instant in self.completed_times or self.is_past(instant)

    def is_past(self, instant: str) -> bool:
        """Whether the instant is older than what the active timeline tells."""
        return self.start is not None and instant < self.start

    def find(self, time: str, action: Action) -> Instant | None:
        wanted = action.when_complete
        return next((i for i in self._at(time) if i.action.when_complete is wanted), None)

    def _at(self, time: str) -> Iterator[Instant]:
        """The instants of this time, which may be several: a savepoint has its commit's."""
        instants = self.instants
        for number in range(bisect_left(instants, time, key=_time_of), len(instants)):
            if instants[number].time != time:
                return
            yield instants[number]


@lru_cache(NAMES_REMEMBERED)
def _ranked(name: str) -> tuple[str, tuple[int, str, str], Instant] | None:
    """What is the same for all files of an instant, how far the one of this name shows it, and as what.

    Of several that show it equally far, which no writer makes, one counts in whatever order they come.
    """
    instant = parse_instant_file(name)
    if instant is None:
        return None
    rank = instant.state.value, instant.completion or "", instant.action.value
    return f"{instant.time} {instant.action.when_complete.value}", rank, instant


def _place(instant: Instant) -> tuple[str, str]:
    return instant.time, instant.action.value


def _time_of(instant: Instant) -> str:
    return instant.time


def _in_order(instants: Iterable[Instant]) -> tuple[Instant, ...]:
    return tuple(sorted(instants, key=_place))
