"""Processor time and peak memory of a process and its descendants, from the process table by process id."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import defaultdict
from pathlib import Path
from types import TracebackType

PROC = Path("/proc")
INTERVAL = 0.05

DRIVER, JVM, TASK = "driver's Python", "JVM", "Python worker"


def processor_seconds(root: int) -> float:
    """Processor time that a process and its descendants have used so far, those that ended included.

    On a machine that others use too this tells more than the clock on the wall.
    """
    ticks = 0
    for pid in _descendants(root):
        with contextlib.suppress(OSError):
            ticks += sum(int(field) for field in _stat(pid)[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


class PeakMemory:
    """Samples resident memory of a process and its descendants while the ``with`` block runs.

    ``peaks`` holds megabytes by role, for the largest process of each. The kernel's own high-water marks are
    reset at the start and read with each sample, so that a peak between two samples isn't lost.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.peaks: dict[str, float] = defaultdict(float)

    def __enter__(self) -> PeakMemory:
        for pid in _descendants(self._pid):
            _reset_high_water_mark(pid)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._thread.join()
        self._sample()

    def _watch(self) -> None:
        while not self._end.wait(INTERVAL):
            self._sample()

    def _sample(self) -> None:
        for pid in _descendants(self._pid):
            megabytes = _high_water_mark(pid)
            role = DRIVER if pid == self._pid else _role(pid)
            self.peaks[role] = max(self.peaks[role], megabytes)


def _descendants(root: int) -> list[int]:
    children: dict[int, list[int]] = defaultdict(list)
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            try:
                parent = int(_stat(int(entry.name))[1])
            except OSError:
                continue
            children[parent].append(int(entry.name))
    found, todo = [], [root]
    while todo:
        pid = todo.pop()
        found.append(pid)
        todo.extend(children[pid])
    return found


def _stat(pid: int) -> list[str]:
    """The fields of ``/proc/PID/stat`` from the state on."""
    # The command's name is in parentheses and may hold anything, so count from the last one.
    return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()


def _role(pid: int) -> str:
    try:
        command = (PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return TASK
    return JVM if b"org.apache.spark" in command else TASK


def _high_water_mark(pid: int) -> float:
    try:
        status = (PROC / str(pid) / "status").read_text()
    except OSError:
        return 0.0
    for line in status.splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0


def _reset_high_water_mark(pid: int) -> None:
    # Where it can't be reset the mark since the process started counts, which is never less.
    with contextlib.suppress(OSError):
        (PROC / str(pid) / "clear_refs").write_text("5")
