"""How long each step of a write takes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sparkrobust.probe import Point, reached
from sparkrobust.world import Clock


class Steps:
    """Adds up seconds by the name of the step; of nested steps the inner one's are its own."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.seconds: dict[str, float] = {}
        self._inner = [0.0]

    @contextmanager
    def taking(self, name: str) -> Iterator[None]:
        reached(Point.STEP_BEGUN, step=name)
        started = self._clock.elapsed()
        self._inner.append(0.0)
        try:
            yield
        finally:
            took = self._clock.elapsed() - started
            self.seconds[name] = self.seconds.get(name, 0.0) + took - self._inner.pop()
            self._inner[-1] += took
