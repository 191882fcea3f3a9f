"""What a test has happen when a write comes to a point, or to any other moment."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from sparkrobust import probe
from sparkrobust.probe import Point
from sparkrobust.storage.contract import Storage

_CHANGES = {"put", "put_if_absent", "replace_if_unchanged", "delete", "delete_tree", "stage", "seal"}
_CHANGES |= {"publish_all", "publish_last"}
_LONG = 120
"""Seconds: nobody waits for so long unless the test has failed."""


def at(point: Point, action: Callable[[], object]) -> probe.Listener:
    """What happens once a point is reached, the first time."""
    todo = [action]

    def listen(reached: Point, facts: dict[str, Any]) -> None:
        if reached is point and todo:
            todo.pop()()

    return listen


@contextmanager
def overtaken(early: Callable[[], object]) -> Iterator[None]:
    """Another write begins before that of the block, and is completed once the tasks of that have ended."""
    begun, goes_on = threading.Event(), threading.Event()

    def pause() -> None:
        begun.set()
        assert goes_on.wait(_LONG)

    with ThreadPoolExecutor(1) as threads:
        with probe.listening(at(Point.INFLIGHT, pause)):
            other = threads.submit(early)
            assert begun.wait(_LONG)

        def go_on() -> None:
            goes_on.set()
            other.result()

        try:
            with probe.listening(at(Point.STAGE_ENDED, go_on)):
                yield
        finally:
            goes_on.set()


class Moments:
    """Where a driver comes to, one after the other; at one of them something happens."""

    def __init__(self, number: int = -1, happening: Callable[[], object] = lambda: None) -> None:
        self._number, self._happening = number, happening
        self.seen: list[str] = []

    def listen(self, point: Point, facts: dict[str, Any]) -> None:
        self.come(point.value)

    def come(self, moment: str) -> None:
        self.seen.append(moment)
        if len(self.seen) - 1 == self._number:
            self._happening()


class Watched:
    """A store under a driver for which the time before each of its changes is a moment too."""

    def __init__(self, inner: Storage, moments: Moments) -> None:
        self._inner, self._moments = inner, moments

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._inner, name)
        if name not in _CHANGES:
            return real

        def watched(what: Any, *rest: Any, **more: Any) -> Any:
            path = what if isinstance(what, str) else ""
            self._moments.come(f"before {name} {path.rpartition('/')[2]}")
            return real(what, *rest, **more)

        return watched
