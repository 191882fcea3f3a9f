"""For how long a write holds the table's lock: by a watch on the file lock, and by the points it comes to."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

from sparkrobust.probe import Point, listening
from sparkrobust.storage import locks
from sparkrobust.storage.locks import FileSystemLock, Grip

HELD = "held"


class Watch:
    """What happened each time that the lock was held, in seconds since it was taken."""

    def __init__(self) -> None:
        self.times: list[dict[str, float]] = []
        self._taken = 0.0

    def taken(self) -> None:
        """The lock is had."""
        self.times.append({})
        self._taken = time.perf_counter()

    def reached(self, name: str) -> None:
        """Something was done, under the lock or not."""
        if self.times and HELD not in self.times[-1]:
            self.times[-1][name] = time.perf_counter() - self._taken

    def of(self, point: Point) -> dict[str, float]:
        """The time when the lock was held in which this point was reached."""
        [found] = [seconds for seconds in self.times if point.value in seconds]
        return found


@contextlib.contextmanager
def watched() -> Iterator[Watch]:
    """Watch the file locks of this process, of which one at a time is held in the block."""
    watch = Watch()
    take, release = FileSystemLock.try_acquire, locks._FileGrip.release

    def taken(lock: FileSystemLock, owner: str, nonce: str) -> Grip | None:
        grip = take(lock, owner, nonce)
        if grip is not None:
            watch.taken()
        return grip

    def released(grip: Any) -> None:
        watch.reached(HELD)
        release(grip)

    locks_class: Any = FileSystemLock
    grips_class: Any = locks._FileGrip
    locks_class.try_acquire, grips_class.release = taken, released
    try:
        with listening(lambda point, facts: watch.reached(point.value)):
            yield watch
    finally:
        locks_class.try_acquire, grips_class.release = take, release
