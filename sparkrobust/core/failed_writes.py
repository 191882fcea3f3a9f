"""Which pending instants are rolled back, and when (RFC-79, rollback of failed writes)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Fate(Enum):
    """What becomes of a pending instant that nobody has planned to roll back yet."""

    ROLLED_BACK = "a rollback is planned"
    ALIVE = "its writer lives"
    EXECUTED_AGAIN = "the plan of a table service stays, and is executed again"
    TOO_YOUNG = "the plan of a table service may still be waiting to be executed"
    LEFT = "failed writes are left alone"


@dataclass(frozen=True, kw_only=True)
class Pending:
    """What is known of a pending instant."""

    service: bool
    """It is the plan of a table service, and no write."""
    removable: bool = False
    """The plan goes when it is rolled back, and can't be executed again."""
    alive: bool = False
    """It has a heartbeat that has not expired."""
    age_ms: int = 0
    """Since it was requested."""

    @property
    def stays(self) -> bool:
        """Whether its plan stays when it is rolled back, which is for who executes it again."""
        return self.service and not self.removable


def fate_of(pending: Pending, *, eager: bool, never: bool, delay_ms: int) -> Fate:
    """What becomes of it.

    Parameters
    ----------
    eager
        There is a single writer, so whatever write is pending has failed.
    never
        Failed writes are left alone.
    delay_ms
        The age before which a removable plan is left alone.
    """
    if pending.stays:
        return Fate.EXECUTED_AGAIN
    if pending.service:
        if pending.alive:
            return Fate.ALIVE
        if pending.age_ms < delay_ms:
            return Fate.TOO_YOUNG
    elif pending.alive and not eager:
        return Fate.ALIVE
    return Fate.LEFT if never else Fate.ROLLED_BACK
