"""Time, chance and threads: the one place that asks the machine for any.

Everything else is given a :class:`Clock`, :class:`Ids` and :class:`Hands`, so that a simulated world
can own them.
"""

from __future__ import annotations

import secrets
import sys
import time
import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Thread
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

_AT_ONCE_SECONDS = 0.0003
"""What takes no longer waits for nobody: handing it to a thread would take longer than doing it."""
_TRIED, _BLOCK = 3, 64


_CLOCK_REALTIME_COARSE = 5
"""Of Linux; Python has no name for it."""


class Clock:
    """The machine's clock."""

    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    def stamp_ns(self) -> int | None:
        """What the kernel stamps a file with, at least, that is changed from now on; ``None``: who knows."""
        return time.clock_gettime_ns(_CLOCK_REALTIME_COARSE) if sys.platform == "linux" else None

    def elapsed(self) -> float:
        """Seconds from some fixed moment; never goes back."""
        return time.perf_counter()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class Ids:
    """Names that nobody else has."""

    def nonce(self) -> str:
        """Sixteen hexadecimal digits: the identity of one write."""
        return secrets.token_hex(8)

    def uuid(self) -> str:
        return str(uuid.uuid4())

    def number(self) -> int:
        """31 random bits: what makes an attempt's write token unique."""
        return secrets.randbits(31)


class Hands:
    """Things done at once, which mostly wait for a store."""

    def map(self, work: Callable[[T], R], items: Iterable[T], *, most: int) -> list[R]:
        """What ``work`` makes of each item, in their order; the first error ends it."""
        everything = list(items)
        done = self._while_it_is_fast(work, everything) if len(everything) > _BLOCK else []
        left = everything[len(done) :]
        if len(left) < 2:
            return done + [work(item) for item in left]
        with ThreadPoolExecutor(min(most, len(left))) as pool:
            return done + list(pool.map(work, left))

    @staticmethod
    def _while_it_is_fast(work: Callable[[T], R], items: list[T]) -> list[R]:
        """The results of the first items, up to where somebody has to be waited for."""
        done: list[R] = []
        size = 1
        while len(done) < len(items):
            started = time.perf_counter()
            done += [work(item) for item in items[len(done) : len(done) + size]]
            slow = time.perf_counter() - started > size * _AT_ONCE_SECONDS
            # The very first one may have had something to prepare.
            if slow and len(done) >= _TRIED:
                break
            size = 1 if len(done) < _TRIED else _BLOCK
        return done

    def every(self, seconds: float, work: Callable[[], object]) -> Callable[[], None]:
        """Do something again and again, each time so long after the last one had ended; what stops it.

        ``work`` must not raise.  Once it was stopped it does not begin again; what has begun may still end.
        """
        stopped = Event()

        def beat() -> None:
            while not stopped.wait(seconds):
                work()

        try:
            Thread(target=beat, name="sparkrobust-every", daemon=True).start()
        except BaseException:
            stopped.set()  # it may have begun when Ctrl-C came, and nobody else could stop it
            raise
        return stopped.set
