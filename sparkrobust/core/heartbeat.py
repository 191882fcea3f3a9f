"""Whether a writer is alive, by the age of its heartbeat file; Hudi's rule."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Pulse:
    """How often a writer's heartbeat is renewed, and how many times that may fail."""

    interval_ms: int = 60_000
    tolerable_misses: int = 2

    @property
    def lifetime_ms(self) -> int:
        """How long a heartbeat speaks for its writer."""
        return self.interval_ms * self.tolerable_misses

    def is_alive(self, beat_ms: int | None, now_ms: int) -> bool:
        """Whether a heartbeat of this time, ``None`` where there is none, has not expired."""
        return beat_ms is not None and now_ms - beat_ms <= self.lifetime_ms
