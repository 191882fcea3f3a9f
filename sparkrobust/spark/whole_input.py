"""Whether a task has got all its rows, or what makes them has failed on the way; a habit of PySpark.

When something fails before our function in the same stage, another Python function or the fetching of a
shuffle, the JVM ends the stream of rows where it is, and PySpark and pyarrow take that for its end.  The task
then fails, whatever we answer, but our function would have done its slot by then, with some of the rows; and
the next attempt, which has them all, would find it done with others.

After the last row the JVM says that it was the last, which PySpark reads when our function has returned.  So
something has to be there to be read, which is not so where the stream broke off.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

T = TypeVar("T")

_WORKERS = ("pyspark.worker", "__main__")
"""As whose ``main`` a worker runs."""


class BrokenInputError(EOFError):
    """The rows broke off.  Nobody sees this: Spark tells what has failed before."""


def whole(items: Iterable[T]) -> Iterator[T]:
    """What a task is given, begun where PySpark calls it; an error instead of an end that is none."""
    incoming = _incoming()
    yield from items
    if incoming is not None and not incoming.peek(1):
        raise BrokenInputError("the rows broke off: what makes them has failed")


def _incoming() -> Any:
    """What PySpark's worker reads from; ``None`` in a process that is none."""
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_code.co_name == "main" and frame.f_globals.get("__name__") in _WORKERS:
            incoming = frame.f_locals.get("infile")
            return incoming if hasattr(incoming, "peek") else None
    return None
