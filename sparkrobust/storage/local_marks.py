"""Begin markers as lines in a few files, as Hudi's timeline server writes and its rollback reads them.

A folder and a file for each of them would take as long as a small data file itself.
"""

from __future__ import annotations

import contextlib
import functools
import os
from threading import get_ident

from sparkrobust.core.names import MARKER_LIST, MARKER_LISTS_SAY, MARKERS_ARE_LISTED
from sparkrobust.storage import posix
from sparkrobust.world import Ids


def say_that_they_are_listed(folder: str) -> None:
    """For whoever looks for marks in the folder."""
    with contextlib.suppress(FileExistsError):
        posix.write_new(f"{folder}/{MARKER_LISTS_SAY}", MARKERS_ARE_LISTED)


def may_be_listed(mark: str) -> bool:
    """Whether a line can hold it."""
    return "\n" not in mark and "\r" not in mark


def add(folder: str, mark: str, *, durable: bool) -> None:
    """Put a mark into this thread's own list, into which nobody else writes."""
    tells = f"{folder}/{MARKER_LIST}{_number_of(os.getpid(), get_ident())}"
    posix.append(tells, f"{mark}\n".encode(), durable=durable)


@functools.cache
def _number_of(process: int, thread: int) -> int:
    """A process that is forked has its parent's memory, and numbers of its own."""
    return Ids().number()
