"""What goes on in the background of a test, and must not go on in that of the next one."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from sparkrobust.world import Hands


@pytest.fixture(autouse=True)
def background_ends(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Who dies in a test, or gives nothing back, leaves a thread that beats or renews.

    Its process would be gone, and here it is the test's.
    """
    stops: list[Callable[[], None]] = []
    every = Hands.every

    def remembered(hands: Hands, seconds: float, work: Callable[[], object]) -> Callable[[], None]:
        stops.append(every(hands, seconds, work))
        return stops[-1]

    monkeypatch.setattr(Hands, "every", remembered)
    yield
    for stop in stops:
        stop()
