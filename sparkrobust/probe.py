"""The one seam for who watches a write, or disturbs it: progress, traces, fault injection.

Protocol code says where it is; nobody listens in production but the progress display.  A listener
runs in the thread that reached the point, before anything further happens there: it may take its
time, kill the process or raise.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any


class Point(Enum):
    """Where a write, or who ends one, has come to: the thing has just been done."""

    # A driver's steps.
    STEP_BEGUN = "step begun"
    """One of the eight steps (``step``) begins."""
    GATE_OPENED = "gate opened"
    REQUESTED = "requested"
    INFLIGHT = "inflight"
    STAGE_ENDED = "stage ended"
    OVERTAKEN = "overtaken"
    """Other writers have changed file groups of the write, whose slots (now so many) are done again."""
    GATE_CLOSED = "gate closed"
    """The finalize marker is there, the gate is gone, what was staged is sealed."""
    MARKERS_READ = "markers read"
    COMMIT_STAGED = "commit staged"
    DECIDED = "decided"
    PARTITIONS_MADE = "partitions made"
    DATA_PUBLISHED = "data published"
    COMMIT_PUBLISHED = "commit published"
    CLEANED_UP = "cleaned up"
    # An attempt's.
    GATE_SEEN = "gate seen"
    """An attempt has looked at the gate."""
    FILE_BEGUN = "file begun"
    """Its begin marker is there, and it is open where nobody looks."""
    FILES_STAGED = "files staged"
    """All files of the attempt are closed and durable; there is no completion marker yet."""
    SLOT_DONE = "slot done"
    """The slot's completion marker is there, ours or another attempt's."""
    # Of who undoes a write.
    ROLLBACK_PLANNED = "rollback planned"
    ABORT_DECIDED = "abort decided"
    REVOKED = "revoked"
    """What was staged is out of reach."""
    FILES_DELETED = "files deleted"
    INSTANTS_DELETED = "instants deleted"
    ROLLED_BACK = "rolled back"
    """The rollback is complete; traces of the write may be left."""


Listener = Callable[[Point, dict[str, Any]], None]
"""What is told the point, and what is known there."""

_listeners: tuple[Listener, ...] = ()
_change = threading.Lock()


def reached(point: Point, **facts: Any) -> None:
    """Tell whoever listens."""
    for listener in _listeners:
        listener(point, facts)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Tell a listener of every point that this process reaches in the block, whichever thread does."""
    global _listeners
    with _change:
        _listeners = (*_listeners, listener)
    try:
        yield
    finally:
        with _change:
            _listeners = tuple(one for one in _listeners if one is not listener)
