"""Processes of this machine, seen through ``/proc`` and stopped by their ids alone."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

Found = TypeVar("Found")

PATIENCE_SECONDS = 120.0


def wait_for(look: Callable[[], Found | None], what: str, seconds: float = PATIENCE_SECONDS) -> Found:
    """Look again and again until there is something to see."""
    deadline = time.monotonic() + seconds
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not come about within {seconds:g} s")
        time.sleep(0.02)


def children(pid: int) -> list[int]:
    """The processes that a process started and that are still its children."""
    found: list[int] = []
    with contextlib.suppress(OSError):  # it has ended, perhaps just now
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):  # this one has
                told = Path(f"/proc/{pid}/task/{thread}/children").read_text()
                found += [int(child) for child in told.split()]
    return found


def descendants(pid: int) -> Iterator[int]:
    """Children, their children, and so on."""
    for child in children(pid):
        yield child
        yield from descendants(child)


def parent(pid: int) -> int:
    """The process that a process is a child of; 0 if it is gone."""
    fields = _stat(pid)
    return int(fields[1]) if fields else 0


def is_gone(pid: int) -> bool:
    """Whether a process has ended, even if nobody has asked how."""
    fields = _stat(pid)
    return not fields or fields[0] in "ZX"


def _stat(pid: int) -> list[str]:
    try:
        # The command's name, in parentheses, may hold anything.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def arguments(pid: int) -> list[str]:
    """What a process was started with, empty where it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    except OSError:
        return []


def open_files(pid: int, *, writing: bool = False) -> list[str]:
    """The files that a process has open, or has open for writing, as far as it is still there."""
    found: list[str] = []
    with contextlib.suppress(OSError):
        for entry in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):  # closed meanwhile
                if not writing or _is_written(pid, entry):
                    found.append(os.readlink(f"/proc/{pid}/fd/{entry}"))
    return found


def _is_written(pid: int, entry: str) -> bool:
    lines = Path(f"/proc/{pid}/fdinfo/{entry}").read_text().splitlines()
    flags = next(line for line in lines if line.startswith("flags:"))
    return bool(int(flags.split()[1], 8) & (os.O_WRONLY | os.O_RDWR))


def listening_ports(pid: int) -> list[int]:
    """The ports on which a process takes connections, in whatever network it is."""
    mine = {name for name in open_files(pid) if name.startswith("socket:")}
    found = []
    with contextlib.suppress(OSError):  # it has ended
        for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
            _, address, _, state, *fields = line.split()
            if state == "0A" and f"socket:[{fields[5]}]" in mine:
                found.append(int(address.rpartition(":")[2], 16))
    return found


def id_inside(pid: int) -> int:
    """What a process is called by itself, where it has a process namespace of its own; 0 if it is gone."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("NSpid:"):
                return int(line.split()[-1])
    except OSError:
        return 0
    return pid


def send(number: signal.Signals, pids: Iterable[int]) -> None:
    """A signal to processes, as far as they are still there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


@dataclass(frozen=True)
class Known:
    """A process that was seen once.  When it has ended, its id may soon be that of somebody else's."""

    pid: int
    began: str
    """In ticks since the machine has."""

    @classmethod
    def now(cls, pid: int) -> Known:
        """The one that has this id, if one has."""
        return cls(pid, _began(pid))

    @property
    def is_gone(self) -> bool:
        return is_gone(self.pid) or _began(self.pid) != self.began

    def kill(self) -> None:
        """End it and all that it has started, if it has not ended."""
        if not self.is_gone:
            kill_with_descendants(self.pid)


def _began(pid: int) -> str:
    fields = _stat(pid)
    return fields[19] if fields else ""


def kill(*pids: int) -> None:
    """End processes at once, that are there now, and see that they have ended."""
    known = [Known.now(pid) for pid in pids]
    send(signal.SIGKILL, pids)
    for one in known:
        wait_for(lambda one=one: one.is_gone, f"the end of process {one.pid}")  # type: ignore[misc]


def kill_with_descendants(pid: int) -> None:
    """End a process and all that it has started, as they stand."""
    kill(pid, *descendants(pid))
