"""Faults as values: when something goes wrong, what it is, and when it is over.

>>> Fault("zombie", at("files staged"), Partition(), until=at("commit published", who="driver"))
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from fault_injection.spark.exchange import Rule

# -- when -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class At:
    """Somebody says that he is there; he stays there until the fault has happened."""

    point: str
    who: str = ""
    nth: int = 1
    times: int = 1
    facts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Appears:
    """There is a file of this name; ``**`` and ``*`` as in :meth:`pathlib.Path.glob`, below a folder."""

    folder: str
    pattern: str
    new: bool = False
    """Only one that was not there when the job began."""


@dataclass(frozen=True)
class Opens:
    """An executor, or one of its Python workers, has a file open whose path fits this pattern."""

    pattern: str
    writing: bool = False
    """Only for writing."""


@dataclass(frozen=True)
class Told:
    """The test says so, by :meth:`fault_injection.spark.chaos.Running.end`."""


@dataclass(frozen=True)
class JobEnds:
    """The job has ended, however it did."""


When: TypeAlias = At | Appears | Opens | Told | JobEnds


def at(point: str, who: str = "", nth: int = 1, times: int = 1, **facts: str) -> At:
    """A point of sparkrobust's probe, by its value, or one that a pipeline names by ``here``."""
    return At(point=point, who=who, nth=nth, times=times, facts=facts)


def stage_starts(nth: int = 1) -> At:
    """The driver has begun the n-th stage of the job; it does not wait."""
    return At(point="stage starts", who="driver", nth=nth)


def before(function: str, nth: int = 1, **arguments: str) -> At:
    """The driver is about to call a function, ``package.module:Class.method``."""
    return At(point=f"before {function}", who="driver", nth=nth, facts=arguments)


def after(function: str, nth: int = 1, **arguments: str) -> At:
    """The driver has called a function, which has returned."""
    return At(point=f"after {function}", who="driver", nth=nth, facts=arguments)


def request(method: str, path: str = "*", query: str = "*", nth: int = 1, times: int = 1) -> At:
    """The store's proxy is asked something; all three are patterns, and a path begins with the bucket."""
    asked = {"method": method, "path": path, "query": query}
    return At(point="request", who="store", nth=nth, times=times, facts=asked)


# -- what -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Raise:
    """An exception, where it is."""

    message: str = "injected"


@dataclass(frozen=True)
class ExitWorker:
    """The Python process ends itself."""

    status: int = 9


@dataclass(frozen=True)
class KillExecutor:
    """SIGKILL to the executor that came there and its Python workers; to every one, if it was the driver."""


@dataclass(frozen=True)
class Outlive:
    """The executor dies, and its Python worker goes on when the fault ends."""


@dataclass(frozen=True)
class Partition:
    """The executor's host is cut off: it reaches the storage alone.  Its task sleeps until the fault ends."""

    frozen: bool = False
    """The executor itself sleeps too: for faults that come to it by something else than its task."""
    alone: float = 0.0
    """So many seconds it goes on, awake and still cut off, once the fault has ended."""


@dataclass(frozen=True)
class Hold:
    """It sleeps until the fault ends."""


@dataclass(frozen=True)
class LoseShuffle:
    """Every file of a shuffle's is deleted from the executors' disks."""


@dataclass(frozen=True)
class RunAgain:
    """The driver runs the plan that it ran last a second time."""


@dataclass(frozen=True)
class KillDriver:
    """SIGKILL to the driver, its JVM and its Python."""


@dataclass(frozen=True)
class FreezeDriver:
    """SIGSTOP to the driver, its JVM and its Python, until the fault ends."""


@dataclass(frozen=True)
class FillDisk:
    """The small disk over this folder has no byte left, until the fault ends."""

    folder: str


@dataclass(frozen=True)
class Seal:
    """Nobody can write into the folder, until the fault ends."""

    folder: str


@dataclass(frozen=True)
class Answer:
    """The store's proxy answers this status, and asks nobody."""

    status: int = 503


@dataclass(frozen=True)
class CutAnswer:
    """The store does what it was asked, and the connection is cut before it can say so."""


@dataclass(frozen=True)
class Slow:
    """The store's proxy takes its time."""

    seconds: float = 2.0


Deed: TypeAlias = (
    Raise
    | ExitWorker
    | KillExecutor
    | Outlive
    | Partition
    | Hold
    | LoseShuffle
    | RunAgain
    | KillDriver
    | FreezeDriver
    | FillDisk
    | Seal
    | Answer
    | CutAnswer
    | Slow
)

LASTING = (Outlive, Partition, Hold, FreezeDriver, FillDisk, Seal)
"""Deeds that have an end."""
OF_THE_STORE = (Answer, CutAnswer, Slow)
"""Deeds of the store's proxy."""
_BY_WHO_IS_HIT = {
    Raise: "raise",
    ExitWorker: "exit",
    Outlive: "outlive",
    RunAgain: "again",
    Answer: "answer",
    CutAnswer: "cut",
    Slow: "slow",
}


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong in a run."""

    name: str
    when: When
    deed: Deed
    until: When = field(default_factory=JobEnds)
    longest: float = math.inf
    """After so many seconds it is over anyway: it may itself keep its end from coming."""

    def __post_init__(self) -> None:
        if isinstance(self.when, JobEnds):
            raise ValueError(f"{self.name}: after the job nothing can go wrong with it")
        lasts = not isinstance(self.until, JobEnds) or self.longest < math.inf
        if lasts and not isinstance(self.deed, LASTING):
            raise ValueError(f"{self.name}: {type(self.deed).__name__} is over at once")
        asked = isinstance(self.when, At) and self.when.point == "request"
        if isinstance(self.deed, OF_THE_STORE) and not asked:
            raise ValueError(f"{self.name}: {type(self.deed).__name__} happens to a request")
        if "/" in self.name or self.name.startswith("."):
            raise ValueError(f"{self.name!r} can't be a file's name")

    def rules(self) -> list[Rule]:
        """What the job's processes have to know of it."""
        found = []
        if isinstance(self.when, At):
            found.append(self._rule(self.name, self.when, self._then(), self._text()))
        if isinstance(self.until, At):
            found.append(self._rule(ending(self.name), self.until, "wait", ""))
        return found

    @staticmethod
    def _rule(name: str, when: At, then: str, text: str) -> Rule:
        return Rule(
            name=name, point=when.point, facts=when.facts, who=when.who, nth=when.nth, times=when.times,
            then="go" if then == "wait" and when.point == "stage starts" else then, text=text,
        )  # fmt: skip

    def _then(self) -> str:
        return _BY_WHO_IS_HIT.get(type(self.deed), "wait")

    def _text(self) -> str:
        deed = self.deed
        if isinstance(deed, Raise):
            return deed.message
        if isinstance(deed, (ExitWorker, Answer)):
            return str(deed.status)
        return str(deed.seconds) if isinstance(deed, Slow) else ""


def ending(name: str) -> str:
    """What the end of a fault is called."""
    return f"{name}.end"
