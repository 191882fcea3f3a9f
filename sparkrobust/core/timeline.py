"""The timeline as a value, and what may be concluded from it.

A base file counts as committed when its instant is complete on the active timeline, or is older
than the timeline's start: instants that old were archived, and archiving happens only to what was
complete.  So a stray file becomes data once the timeline has moved past it, which is why every
failed write must be cleaned away before that.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache

from sparkrobust.core.instant import WRITES, Action, Instant, InstantTime
from sparkrobust.core.names import NAMES_REMEMBERED, parse_instant_file


@dataclass(frozen=True)
class Timeline:
    """The active instants, each once, in its highest state, in order of their times."""

    instants: tuple[Instant, ...]

    @classmethod
    def of_names(cls, names: Iterable[str]) -> Timeline:
        """From the names in the timeline folder; files that are no instants are passed over."""
        highest: dict[str, tuple[int, Instant]] = {}
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

    def having(self, instant: Instant) -> Timeline:
        """The same with this instant, in place of itself in an earlier state."""
        before = self.find(instant.time, instant.action)
        return Timeline(_in_order([*(i for i in self.instants if i is not before), instant]))

    @cached_property
    def completed_writes(self) -> tuple[Instant, ...]:
        return tuple(i for i in self.instants if not i.pending and i.action in WRITES)

    @cached_property
    def pending(self) -> tuple[Instant, ...]:
        return tuple(i for i in self.instants if i.pending)

    @cached_property
    def _completed_times(self) -> frozenset[str]:
        return frozenset(i.time for i in self.completed_writes)

    @cached_property
    def start(self) -> InstantTime | None:
        """The first completed write that is not held back by a savepoint alone."""
        savepoints = {i.time for i in self.instants if i.action is Action.SAVEPOINT}
        return next((i.time for i in self.completed_writes if i.time not in savepoints), None)

    @cached_property
    def newest_time(self) -> str:
        """The largest time on the timeline, of request or of completion; ``""`` for an empty one."""
        times = (t for i in self.instants for t in (i.time, i.completion) if t)
        return max(times, default="")

    @cached_property
    def latest_write(self) -> Instant | None:
        return self.completed_writes[-1] if self.completed_writes else None

    def is_committed(self, instant: str) -> bool:
        """Whether a base file of this instant is part of the table."""
        return instant in self._completed_times or self.is_past(instant)

    def is_past(self, instant: str) -> bool:
        """Whether the instant is older than what the active timeline tells."""
        return self.start is not None and instant < self.start

    def find(self, time: str, action: Action) -> Instant | None:
        wanted = action.when_complete
        return next((i for i in self.instants if i.time == time and i.action.when_complete is wanted), None)


@lru_cache(NAMES_REMEMBERED)
def _ranked(name: str) -> tuple[str, int, Instant] | None:
    """What is the same for all files of an instant, how far the one of this name shows it, and as what."""
    instant = parse_instant_file(name)
    if instant is None:
        return None
    return f"{instant.time} {instant.action.when_complete.value}", instant.state.value, instant


def _in_order(instants: Iterable[Instant]) -> tuple[Instant, ...]:
    return tuple(sorted(instants, key=lambda i: (i.time, i.action.value)))
