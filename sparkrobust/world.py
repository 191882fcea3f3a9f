"""Time and chance: the one place that asks the machine for either.

Everything else is given a :class:`Clock` and :class:`Ids`, so that a simulated world can own both.
"""

from __future__ import annotations

import secrets
import time
import uuid


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
