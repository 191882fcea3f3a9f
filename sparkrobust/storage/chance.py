"""The only place in this layer that asks for randomness or time.

Names that must not collide, and pauses between tries.  Everything that loops takes a
:class:`Patience`, so that tests and a simulated world can replace it.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass


def fresh_name() -> str:
    """Sixteen hex digits that nobody else will come up with."""
    return os.urandom(8).hex()


def now_ms() -> int:
    """Milliseconds since 1970 by this machine's clock."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How often something is tried, and how long it is waited in between."""

    tries: int
    first_pause: float
    longest_pause: float
    sleep: Callable[[float], None] = time.sleep

    def attempts(self) -> Iterator[int]:
        """Count the tries from 1; before each but the first, pause.

        The pauses double, each one drawn at random between a half and the whole, so that callers
        that failed together don't come back together.
        """
        longest = self.first_pause
        for number in range(1, self.tries + 1):
            if number > 1:
                self.sleep(longest * random.uniform(0.5, 1.0))
                longest = min(longest * 2, self.longest_pause)
            yield number
