"""Tests that need a server are skipped, with the reason, where it can't be had."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TypeVar

import pytest

from fault_injection.servers import Unavailable

Server = TypeVar("Server")


@contextmanager
def or_skip(start: Callable[[], AbstractContextManager[Server]]) -> Iterator[Server]:
    """A server that runs as long as the block."""
    try:
        with start() as server:
            yield server
    except Unavailable as reason:
        pytest.skip(str(reason))
