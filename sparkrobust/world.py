"""Time, chance and threads: the one place that asks the machine for any.

Everything else is given a :class:`Clock`, :class:`Ids` and :class:`Hands`, so that a simulated world
can own them.
"""

from __future__ import annotations

import secrets
import time
import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Thread
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


class Clock:
    """The machine's clock."""

    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        return time.time_ns() // 1_000_000

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
        """What ``work`` makes of each item, in their order; the first error is raised once all have ended."""
        everything = list(items)
        if len(everything) < 2:
            return [work(item) for item in everything]
        with ThreadPoolExecutor(min(most, len(everything))) as pool:
            return list(pool.map(work, everything))

    def every(self, seconds: float, work: Callable[[], object]) -> Callable[[], None]:
        """Do something again and again, each time so long after the last one had ended; what stops it.

        ``work`` must not raise.  Once it was stopped it does not begin again; what has begun may still end.
        """
        stopped = Event()

        def beat() -> None:
            while not stopped.wait(seconds):
                work()

        Thread(target=beat, name="sparkrobust-every", daemon=True).start()
        return stopped.set
