"""Heartbeats: how writers tell each other, through the table, that they are alive.

Hudi's file: empty, one a write, put again at every beat; what counts is its time by the store's clock.
Ours is there before the write's requested file, so nobody sees a write without one.  A beat that the
store does not answer is tried again; a writer whose heartbeat is older than it may become knows that
others may be undoing its write, and stops before it decides anything.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from sparkrobust.coordinator.table import HudiTable
from sparkrobust.core.instant import InstantTime
from sparkrobust.core.names import HEARTBEATS, heartbeat_file
from sparkrobust.errors import HeartbeatLostError, RobustWriteError
from sparkrobust.storage.locks import time_of

_TRIES = 3
"""Of each beat."""


class Heartbeat:
    """A write's heartbeat, as long as its driver has it."""

    def __init__(self, table: HudiTable, instant: InstantTime) -> None:
        self._table, self._instant = table, instant
        self._last = 0.0
        self._stop: Callable[[], None] | None = None

    def start(self) -> None:
        """Put it, and go on putting it from a thread of its own."""
        self._table.storage.make_folder(HEARTBEATS)
        self._put()
        self._stop = self._table.hands.every(self._interval, self._beat)

    @property
    def _interval(self) -> float:
        return self._table.coordination.pulse.interval_ms / 1000

    def _put(self) -> None:
        started = self._table.clock.elapsed()
        self._table.storage.put(heartbeat_file(self._instant), b"")
        # Not later than the store's own time of it.
        self._last = started

    def _beat(self) -> None:
        for _ in range(_TRIES):
            with suppress(RobustWriteError):
                self._put()
                return
            self._table.clock.sleep(self._interval / (2 * _TRIES))
        # The next beat may still be in time; that is asked before the decision.

    def refuse_if_lost(self) -> None:
        """``HeartbeatLostError`` if others may take the writer for dead by now."""
        age = self._table.clock.elapsed() - self._last
        lifetime = self._table.coordination.pulse.lifetime_ms / 1000
        if self._stop is not None and age > lifetime:
            raise HeartbeatLostError(
                f"the heartbeat of {self._instant} could not be renewed for {age:.0f} s, and expired after "
                f"{lifetime:.0f} s: others may have begun to undo this write, so it is given up",
                instant=self._instant,
                path=self._table.storage.url,
                hint="write again once the store answers",
            )

    def stop(self) -> None:
        """No more beats; the file stays until the write's traces are removed, or expires."""
        if self._stop is not None:
            self._stop()
            self._stop = None


def living(table: HudiTable) -> frozenset[str]:
    """The instants whose writers have a heartbeat that has not expired."""
    if not table.storage.list(HEARTBEATS)[0]:
        return frozenset()
    # The time comes first: who slept after its look would take a beat that is renewed for one that is old.
    now, pulse = time_of(table.storage, table.ids), table.coordination.pulse
    beats, _ = table.storage.list(HEARTBEATS)
    return frozenset(beat.path.rpartition("/")[2] for beat in beats if pulse.is_alive(beat.modified_ms, now))


def seconds_since(table: HudiTable, instant: InstantTime) -> float | None:
    """The age of a writer's heartbeat, if it has not expired."""
    if table.storage.stat(heartbeat_file(instant)) is None:
        return None
    now = time_of(table.storage, table.ids)  # first, as above
    found = table.storage.stat(heartbeat_file(instant))
    if found is None:
        return None
    alive = table.coordination.pulse.is_alive(found.modified_ms, now)
    return max(0, now - found.modified_ms) / 1000 if alive else None
