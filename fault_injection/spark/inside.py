"""What runs in the processes of a job, its driver's and its tasks': it hears where they are, and hits them.

A pipeline of anybody's says where it is by :func:`here`; sparkrobust's own says so through its probe.
Without a tester nothing happens there.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fault_injection.spark.exchange import ROOM, Hit, Room, Rule, Run

BUG = "SPARKROBUST_BUG"
"""The environment variable that names a bug to be put into sparkrobust."""

TASK, DRIVER, STORE = "task", "driver", "store"


class InjectedError(Exception):
    """What a task or driver raises because a fault says so."""


Deed = Callable[[Run, Rule, Hit], None]


class Process:
    """This process, as one that can be hit."""

    def __init__(self, who: str, room: Room | None) -> None:
        self.who, self.room = who, room
        self.deeds: dict[str, Deed] = {
            "wait": lambda run, rule, hit: run.wait(rule.name),
            "go": lambda run, rule, hit: None,
            "raise": _raise,
            "exit": _exit,
            "outlive": _outlive,
        }
        self._busy = threading.local()

    def reached(self, point: str, facts: dict[str, Any]) -> None:
        """Somebody has come to a point: see whether he is meant."""
        if self.room is None or getattr(self._busy, "with_a_deed", False):
            return
        run, rules = self.room.current()
        if run is None:
            return
        fitting = [rule for rule in rules if rule.fits(point, self.who, facts)]
        # All count him before any stops him.
        taken = [(rule, run.take(rule, self.who, {**facts, **_task()})) for rule in fitting]
        for rule, hit in taken:
            if hit is not None:
                self._do(run, rule, hit)

    def _do(self, run: Run, rule: Rule, hit: Hit) -> None:
        self._busy.with_a_deed = True
        try:
            self.deeds[rule.then](run, rule, hit)
        finally:
            self._busy.with_a_deed = False


def _raise(run: Run, rule: Rule, hit: Hit) -> None:
    raise InjectedError(rule.text or f"injected by {rule.name}")


def _exit(run: Run, rule: Rule, hit: Hit) -> None:
    os._exit(int(rule.text or 9))


def _outlive(run: Run, rule: Rule, hit: Hit) -> None:
    # Out of the group that PySpark's daemon takes with it when its JVM is gone.
    os.setpgid(0, 0)
    run.wait(rule.name)


def _task() -> dict[str, Any]:
    """Which task this is, where it is one."""
    if this.who != TASK:
        return {}
    from pyspark import TaskContext  # noqa: PLC0415  # the daemon imports it when it forks, and not before

    context = TaskContext.get()
    if context is None:
        return {}
    return {
        "stage": context.stageId(),
        "partition": context.partitionId(),
        "attempt": context.attemptNumber(),
    }


this = Process("", None)


def become(who: str) -> Process:
    """From now on this process can be hit, if the environment says where the tester is."""
    global this
    folder = os.environ.get(ROOM)
    this = Process(who, Room(Path(folder)) if folder else None)
    with contextlib.suppress(ImportError):
        from sparkrobust import probe  # noqa: PLC0415  # a pipeline that is tested may have none

        # Never taken away: the process can be hit as long as it lives.
        _for_ever.enter_context(probe.listening(lambda point, facts: this.reached(point.value, facts)))
    if BUG in os.environ:
        from fault_injection.spark import bugs  # noqa: PLC0415  # sparkrobust's own, asked for by one test

        bugs.BUGS[os.environ[BUG]]()
    return this


_for_ever = contextlib.ExitStack()


def here(name: str, **facts: Any) -> None:
    """Say where a pipeline is, for faults that wait for it: ``here("parsed", file=path)``."""
    this.reached(name, facts)


_watched: set[str] = set()


def watch_call(function: str) -> None:
    """Have a function say when it is called and when it has returned; ``package.module:Class.method``."""
    if function in _watched:
        return
    module, _, path = function.partition(":")
    place: Any = importlib.import_module(module)
    *outer, name = path.split(".")
    for part in outer:
        place = getattr(place, part)
    original = getattr(place, name)

    def saying(*args: Any, **kwargs: Any) -> Any:
        facts = {f"argument{number}": value for number, value in enumerate(args)}
        here(f"before {function}", **facts)
        answer = original(*args, **kwargs)
        here(f"after {function}", **facts)
        return answer

    setattr(place, name, saying)
    _watched.add(function)
