"""When a heartbeat says that its writer is alive."""

from __future__ import annotations

import pytest

from sparkrobust.core.heartbeat import Pulse
from sparkrobust.core.names import heartbeat_file


@pytest.mark.parametrize(
    ("beat", "now", "alive"),
    [(None, 0, False), (0, 0, True), (0, 120_000, True), (0, 120_001, False), (500_000, 0, True)],
)
def test_a_heartbeat_speaks_for_two_intervals(beat: int | None, now: int, alive: bool) -> None:
    assert Pulse().is_alive(beat, now) is alive


def test_how_long_it_speaks_is_for_the_options_to_say() -> None:
    pulse = Pulse(interval_ms=500, tolerable_misses=3)
    assert pulse.lifetime_ms == 1500
    assert pulse.is_alive(0, 1500) and not pulse.is_alive(0, 1501)


def test_a_heartbeat_is_hudis_own_file() -> None:
    assert heartbeat_file("20240101000000000") == ".hoodie/.heartbeat/20240101000000000"
