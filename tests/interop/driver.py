"""Stops our driver at a chosen call to the storage: for good, as a kill does, or for a while.

Only the driver's process is touched; tasks run in others.  A driver that died answers no more
storage call, so nothing of its own cleaning up can happen either.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from sparkrobust import probe
from sparkrobust.probe import Point
from sparkrobust.storage.contract import StagedFile, Storage
from sparkrobust.storage.local import LocalStorage


class DriverDied(BaseException):
    """What the test sees of a killed driver; no ``except Exception`` may take it for an error."""


class Driver:
    """Our driver, with something that happens right before one of its storage calls."""

    def __init__(self) -> None:
        self.dead = False
        self.reached = False
        self._call = ""
        self._path = re.compile("")
        self._action: Callable[..., None] | None = None

    def before(self, call: str, path: str, action: Callable[..., None]) -> None:
        """Once, before ``call`` on a path that the pattern finds: run the action on its arguments."""
        self._call, self._path, self._action = call, re.compile(path), action

    def seen(self, call: str, storage: Storage, arguments: tuple[Any, ...]) -> None:
        """A storage call is about to happen."""
        if self.dead:
            raise DriverDied(call)
        path = arguments[0] if arguments and isinstance(arguments[0], str) else ""
        if self._action is not None and call == self._call and self._path.search(path):
            action, self._action = self._action, None
            self.reached = True
            action(storage, *arguments)

    def _die(self, *_: Any) -> None:
        self.dead = True
        raise DriverDied(self._call)

    def _die_after_one(self, storage: Storage, files: Iterable[StagedFile]) -> None:
        storage.publish(next(iter(files)))
        self._die()

    @contextmanager
    def dies_before(self, call: str, path: str = "") -> Iterator[None]:
        """The block's write must die there, and another driver takes over after it."""
        self.before(call, path, self._die)
        with self._expected_to_die():
            yield

    @contextmanager
    def dies_between_two_files(self) -> Iterator[None]:
        """The block's write must die when it has published the first of several data files."""
        self.before("publish_all", "", self._die_after_one)
        with self._expected_to_die():
            yield

    @contextmanager
    def dies_at(self, point: Point) -> Iterator[None]:
        """The block's write must die where the probe says that it has come to this point."""

        def listener(come_to: Point, facts: dict[str, Any]) -> None:
            if come_to is point and not self.dead:
                self.reached = True
                self._die()

        with probe.listening(listener), self._expected_to_die():
            yield

    @contextmanager
    def _expected_to_die(self) -> Iterator[None]:
        with pytest.raises(DriverDied):
            yield
        assert self.reached
        self.dead = self.reached = False

    @contextmanager
    def meets(self, action: Callable[[], None], call: str, path: str = "") -> Iterator[None]:
        """While the block's write stands before that call, the action runs."""
        self.before(call, path, lambda *_: action())
        yield
        assert self.reached, f"no call of {call} on {path!r}"
        self.reached = False


def patched(monkeypatch: pytest.MonkeyPatch, kind: type[Storage] = LocalStorage) -> Driver:
    """A driver whose every call to this kind of storage passes through here."""
    driver = Driver()

    def watched(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(storage: Storage, *arguments: Any, **named: Any) -> Any:
            driver.seen(name, storage, arguments)
            return original(storage, *arguments, **named)

        return call

    for name, original in inspect.getmembers(kind, inspect.isfunction):
        if name in dir(Storage) and not name.startswith("_"):
            monkeypatch.setattr(kind, name, watched(name, original))
    return driver
