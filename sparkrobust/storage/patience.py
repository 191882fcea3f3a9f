"""How often something is tried, and how long it is waited in between."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from sparkrobust.world import Clock, Ids


@dataclass(frozen=True, kw_only=True)
class Patience:
    """A bounded number of tries with growing pauses, in seconds."""

    tries: int
    first_pause: float
    longest_pause: float
    clock: Clock = field(default_factory=Clock)
    ids: Ids = field(default_factory=Ids)

    def attempts(self) -> Iterator[int]:
        """Count the tries from 1; before each but the first, pause.

        The pauses double, each one drawn at random between a half and the whole, so that callers
        that failed together don't come back together.
        """
        longest = self.first_pause
        for number in range(1, self.tries + 1):
            if number > 1:
                self.clock.sleep(longest * (0.5 + self.ids.number() / 2**32))
                longest = min(longest * 2, self.longest_pause)
            yield number
