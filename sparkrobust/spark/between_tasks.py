"""What one of Spark's Python workers does between two tasks, made cheap; all of it habits of PySpark.

Before each task the worker invalidates the import caches, for which Python (up to 3.12) reads the
directory of every archive on the path again, and PySpark itself is such an archive; after each task
it collects garbage among all objects that its imports have made.  Together that is a tenth of a
second of processor time for a task, which may have ten milliseconds of work.

And what the JVM sends a worker at the start of a task it sends in two or three small pieces, of which
TCP holds each back until the one before is acknowledged, which the other end puts off for 40 ms.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import socket
import sys
import zipimport
from collections.abc import Callable
from typing import Any

_FDS = "/proc/self/fd"

_settled = False


def settle() -> None:
    """Leave the worker such that its next task starts quickly; called at the end of each of ours."""
    global _settled
    if not _settled:
        # Modules live as long as the process: the collector need not look at them again.
        gc.collect()
        gc.freeze()
        _acknowledge_early()
        _settled = True
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimport.zipimporter):
            # An import that looks there makes it anew.
            sys.path_importer_cache.pop(path, None)


def acknowledge() -> None:
    """Have the kernel acknowledge what has come from the JVM, which then sends the next piece."""
    with contextlib.suppress(OSError):  # there is no such folder but on Linux
        for name in os.listdir(_FDS):
            with contextlib.suppress(OSError):
                if os.readlink(f"{_FDS}/{name}").startswith("socket:"):
                    _acknowledge(int(name))


def _acknowledge(descriptor: int) -> None:
    option = getattr(socket, "TCP_QUICKACK", None)
    if option is None:
        return
    copy = os.dup(descriptor)
    try:
        connection = socket.socket(fileno=copy)
    except OSError:  # a kind of socket that Python does not know
        os.close(copy)
        return
    with connection:
        connection.setsockopt(socket.IPPROTO_TCP, option, 1)


def _acknowledge_early() -> None:
    """From the next task on, acknowledge its first piece as soon as it comes."""
    # Where PySpark's daemon takes the function from that serves a task: in 3.5, and in 4.3.
    for place, name in (("__main__", "worker_main"), ("pyspark.worker", "main")):
        module = sys.modules.get(place)
        if hasattr(module, name):
            setattr(module, name, _acknowledging(getattr(module, name)))
            return


def _acknowledging(serve: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:

    def serve_early(incoming: Any, outgoing: Any) -> None:
        with contextlib.suppress(OSError, ValueError):
            select.select([incoming], [], [])
            _acknowledge(incoming.fileno())
        serve(incoming, outgoing)

    return serve_early
