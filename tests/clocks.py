"""Time as a test wants it."""

from __future__ import annotations

import math

from sparkrobust.world import Clock


class TestClock(Clock):
    """Time stands still, but for sleeping."""

    __test__ = False

    def __init__(self) -> None:
        self.ms = 1_704_067_200_000

    def now_ms(self) -> int:
        return self.ms

    def elapsed(self) -> float:
        return self.ms / 1000

    def sleep(self, seconds: float) -> None:
        self.ms += math.ceil(seconds * 1000)  # however short: who waits for a time meets it
