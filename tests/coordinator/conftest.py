"""The servers are those that the stores are tested with; nothing beats on when its test is over."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from sparkrobust.world import Hands
from tests.coordinator.writes import storage, table
from tests.storage.conftest import azure_server, azure_table, s3_server, s3_table

__all__ = ["azure_server", "azure_table", "s3_server", "s3_table", "storage", "table"]


@pytest.fixture(autouse=True)
def heartbeats_end(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A driver that dies in a test leaves its heartbeat's thread: its process is the test's."""
    stops: list[Callable[[], None]] = []
    every = Hands.every

    def remembered(hands: Hands, seconds: float, work: Callable[[], object]) -> Callable[[], None]:
        stops.append(every(hands, seconds, work))
        return stops[-1]

    monkeypatch.setattr(Hands, "every", remembered)
    yield
    for stop in stops:
        stop()
