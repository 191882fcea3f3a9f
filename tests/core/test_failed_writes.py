"""Which pending instants are rolled back (RFC-79)."""

from __future__ import annotations

import itertools

import pytest

from sparkrobust.core.failed_writes import Fate, Pending, fate_of

DELAY = 1000


def every_case() -> list[tuple[Pending, bool, bool]]:
    flags = (False, True)
    known = [
        Pending(service=service, removable=removable, alive=alive, age_ms=age)
        for service, removable, alive in itertools.product(flags, repeat=3)
        for age in (0, DELAY - 1, DELAY, 10 * DELAY)
    ]
    return [
        (one, eager, never)
        for one in known
        for eager, never in ((True, False), (False, False), (False, True))
    ]


@pytest.mark.parametrize(("pending", "eager", "never"), every_case())
def test_only_what_failed_and_may_go_is_rolled_back(pending: Pending, eager: bool, never: bool) -> None:
    fate = fate_of(pending, eager=eager, never=never, delay_ms=DELAY)
    if pending.service:
        may_go = pending.removable and not pending.alive and pending.age_ms >= DELAY
    else:
        may_go = eager or not pending.alive
    assert (fate is Fate.ROLLED_BACK) == (may_go and not never)


def test_why_it_is_left_alone_is_said() -> None:
    def fate(**known: object) -> Fate:
        return fate_of(Pending(**known), eager=False, never=False, delay_ms=DELAY)  # type: ignore[arg-type]

    assert fate(service=False, alive=True) is Fate.ALIVE
    assert fate(service=True) is Fate.EXECUTED_AGAIN
    assert fate(service=True, removable=True, alive=True, age_ms=DELAY) is Fate.ALIVE
    assert fate(service=True, removable=True, age_ms=DELAY - 1) is Fate.TOO_YOUNG
    dead = Pending(service=False)
    assert fate_of(dead, eager=False, never=True, delay_ms=0) is Fate.LEFT
