"""Many writers of one table in one Spark application: a thread each, which writes its own partition."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

PATIENCE_SECONDS = 600.0

Commit = Callable[[int, int], object]
"""One write of the n-th writer, its m-th one."""


class Crowd:
    """Writers that each have to make so many commits; who is refused tries again, which costs time."""

    def __init__(self, writers: int, commits: int, commit: Commit) -> None:
        self._writers, self._commits, self._commit = writers, commits, commit
        self._start = threading.Barrier(writers + 1)
        self.refused = 0
        self.last_refusal = ""

    def run(self) -> float:
        """Seconds from the first write's begin to the last one's end."""
        with ThreadPoolExecutor(self._writers) as pool:
            writing = [pool.submit(self._write, number) for number in range(self._writers)]
            self._start.wait()
            started = time.perf_counter()
            for one in writing:
                one.result()
            return time.perf_counter() - started

    def _write(self, number: int) -> None:
        self._start.wait()
        for turn in range(self._commits):
            self._insist(number, turn)

    def _insist(self, number: int, turn: int) -> None:
        until = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                self._commit(number, turn)
                return
            except Exception as error:  # each engine has its own for who was refused
                if time.monotonic() > until:
                    raise
                traceback.print_exc()
                self.refused += 1
                self.last_refusal = f"{type(error).__name__}: {error}"[:500]
