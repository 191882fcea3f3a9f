"""Writes and faults by chance, and what has to come of them.

A write has up to three faults.  The first is one that every write meets; what else is planned may find
that its moment does not come, above all where the driver was killed.
"""

from __future__ import annotations

import math
import random
from collections.abc import Collection
from dataclasses import dataclass, replace

from fault_injection.spark import faults as f
from fault_injection.spark.faults import Fault, at, request
from fault_injection.spark.jobs import Expected
from fault_injection.spark.report import Report

IN_TASKS = ("gate seen", "file begun", "files staged", "slot done")
"""Where an attempt at a slot comes to, in their order."""
OF_DRIVERS = (
    "requested",
    "inflight",
    "stage ended",
    "gate closed",
    "markers read",
    "commit staged",
    "decided",
    "data published",
    "commit published",
    "cleaned up",
)
REQUESTS = {
    "the gate": request("PUT", "*/gate"),
    "a part of an upload": request("PUT", "*.parquet", "*partNumber=*"),
    "a completion marker": request("PUT", "*/cm/*"),
    "the decision": request("PUT", "*/decision"),
    "the completion of an upload": request("POST", "*.parquet", "uploadId=*"),
    "the completion of the commit file": request("POST", "*/timeline/*", "uploadId=*"),
    "the end of the control folder": request("POST", "*", "delete*"),
}
"""What every write asks an S3 store, and must know the answer to.

Not the beginning of an upload: nobody can find one of which he was never told, as the guarantees say.
"""
OF_EVERY_FILE = ("a part of an upload", "a completion marker", "the completion of an upload")
"""Those that are asked several times."""
MOST_TIMES_BUSY = 5
"""A store that is busy once more is one that is away: then the write may fail."""

_OUT_OF_TASKS = OF_DRIVERS[3:]
_DECIDED = (
    *OF_DRIVERS[OF_DRIVERS.index("decided") :],
    # These arrive, though their driver has died.
    "the decision",
    "the completion of an upload",
    "the completion of the commit file",
)
_SHORTER_THAN_SPARKS_PATIENCE = 4.0
_ERRORS_OF_DISKS = ("PermissionDeniedError", "StorageFullError")
_UNKNOWN = "CommitUnknownError"
_DISKS: tuple[type[f.Deed], ...] = (f.Seal, f.FillDisk)
_WAKES_LATE: tuple[type[f.Deed], ...] = (f.Partition, f.Outlive, f.LoseShuffle)
"""After these a task may be at work that the driver does not wait for."""


@dataclass(frozen=True, kw_only=True)
class Perils:
    """What can happen to a table where it lies."""

    partitions: bool = False
    """Hosts can be cut off from each other."""
    store: bool = False
    """It lies in a store, before which there is a proxy."""
    sealed: str = ""
    """A folder around it, or its own, that nobody may be able to write into."""
    filled: str = ""
    """A small disk, on which it lies."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One write, and what is to happen to it."""

    operation: str
    first: int
    end: int
    how: str
    options: dict[str, str]
    faults: tuple[Fault, ...]

    def __str__(self) -> str:
        faults = ", ".join(f"{type(fault.deed).__name__} {_moment(fault)}" for fault in self.faults)
        return f"{self.operation} of [{self.first}, {self.end}), {self.how}: {faults}"

    def write_to(self, expected: Expected, version: int) -> None:
        """It has become part of the table."""
        expected.write(self.operation, self.first, self.end, version)


def _moment(fault: Fault) -> str:
    text = _when(fault.when)
    if isinstance(fault.deed, f.Slow):
        text += f" for {fault.deed.seconds:g} s"
    if not isinstance(fault.until, f.JobEnds):
        text += f" until {_when(fault.until)}"
    return text if fault.longest == math.inf else f"{text}, at most {fault.longest:g} s"


def _when(when: f.When) -> str:
    if not isinstance(when, f.At):
        return str(when)
    asked = _request_of(when)
    times = f" {when.times} times" if when.times > 1 else ""
    return f"at {asked or repr(when.point)} {when.nth}{times}"


def _request_of(when: f.At) -> str:
    """What the store is asked then."""
    return next((name for name, asked in REQUESTS.items() if asked.facts == when.facts), "")


# -- drawing ---------------------------------------------------------------------------------------------


def drawn(chance: random.Random, table: Expected, perils: Perils) -> Plan:
    """A write that fits the table as it is, and faults that will meet it."""
    # First what the table has no say in: whatever became of it, these are the faults.
    faults = _faults(chance, perils)
    options = {
        "hoodie.parquet.small.file.limit": chance.choice(["0", "104857600"]),
        "hoodie.parquet.max.file.size": chance.choice(["20000", "125829120"]),
        "hoodie.write.robust.on.finalized": chance.choice(["reuse", "fail"]),
    }
    how = chance.choice(["plain", "shuffled", "cached", "source"])
    operation = chance.choice(["upsert", "upsert", "upsert", "bulk_insert", "insert", "delete"])
    rows = chance.choice([40, 300, 1500])
    there = sorted(table.versions)
    if operation in ("bulk_insert", "insert") or not there:
        operation = "insert" if operation == "delete" else operation
        first = there[-1] + 1 if there else 0
    else:
        first = chance.choice(there)
    return Plan(
        operation=operation, first=first, end=first + rows, how=how, options=options, faults=faults
    )  # fmt: skip


def _faults(chance: random.Random, perils: Perils) -> tuple[Fault, ...]:
    """Some, of which no two have one name: no driver dies twice, one host is always within reach, and no disk
    is both full and sealed.
    """
    first = _fault(chance, 1, perils)
    found = {first.name: first}
    for _ in range(chance.choice([0, 0, 1, 1, 2])):
        more = _fault(chance, chance.choice([1, 1, 2, 3]), perils)
        found.setdefault(more.name, more)
    return tuple(found.values())


def _fault(chance: random.Random, nth: int, perils: Perils) -> Fault:
    """One that every write meets, if it is the first task that is hit: each has at least one file."""
    in_task = at(chance.choice(IN_TASKS), "task", nth)
    over = at(chance.choice(_OUT_OF_TASKS), "driver")
    kinds = [
        Fault("raises", in_task, f.Raise()),
        Fault("exits", in_task, f.ExitWorker()),
        Fault("executor", in_task, f.KillExecutor()),
        Fault("executor", at(chance.choice(OF_DRIVERS), "driver"), f.KillExecutor()),
        Fault("shuffle", in_task, f.LoseShuffle()),
        Fault("outlives", in_task, f.Outlive(), until=over),
        Fault("again", at(chance.choice(_OUT_OF_TASKS), "driver"), f.RunAgain()),
        Fault("driver", in_task, f.KillDriver()),
        Fault("driver", at(chance.choice(OF_DRIVERS), "driver"), f.KillDriver()),
        # Perhaps no task comes to the end of a slot: only the driver mends what has befallen it.
        Fault(
            "sleeps", at(chance.choice(IN_TASKS[:2]), "task"), f.FreezeDriver(),
            until=at("slot done", "task"), longest=_SHORTER_THAN_SPARKS_PATIENCE,
        ),
    ]  # fmt: skip
    if perils.partitions:
        kinds += [Fault("zombie", in_task, f.Partition(), until=over)] * 2
    if perils.store:
        kinds += _of_the_store(chance, nth)
    for folder, deed in ((perils.sealed, f.Seal), (perils.filled, f.FillDisk)):
        if folder:
            seconds = chance.choice([0.1, 0.5, 2.0])
            kinds += [Fault("disk", in_task, deed(folder), longest=seconds)] * 2
    return chance.choice(kinds)


def _of_the_store(chance: random.Random, nth: int) -> list[Fault]:
    asked = chance.choice(list(REQUESTS))
    moment = replace(REQUESTS[asked], nth=nth if asked in OF_EVERY_FILE else 1)
    busy = replace(moment, times=chance.randint(1, MOST_TIMES_BUSY))
    fatal = chance.choice([name for name in REQUESTS if name != "the end of the control folder"])
    return [
        *[Fault("busy", busy, f.Answer(503))] * 3,
        *[Fault("cut", moment, f.CutAnswer())] * 3,
        *[Fault("slow", moment, f.Slow(chance.choice([0.5, 1.0, 2.0])))] * 2,
        Fault("driver", REQUESTS[fatal], f.KillDriver()),
        Fault("executor", REQUESTS[fatal], f.KillExecutor()),
    ]


# -- what has to come of it ------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Course:
    """What has happened to a write, and so what is promised of it."""

    plan: Plan
    report: Report
    copies: bool
    """Spark may have started second copies of its tasks."""
    perils: Perils

    @property
    def fates(self) -> tuple[bool, ...]:
        """Whether it has to be part of the table; both where nobody can tell; none if it was not to fail."""
        outcome = self.report.outcome
        if outcome.value is not None:
            return (True,)
        if outcome.killed:
            return self._fates_of_the_killed()
        if not self._met(_DISKS):
            return ()
        if outcome.error == _UNKNOWN:
            return (False, True)
        return (False,) if outcome.error in _ERRORS_OF_DISKS else ()

    def _fates_of_the_killed(self) -> tuple[bool, ...]:
        if self._killed_at in _DECIDED:
            return (True,)
        # A task that came there late, or once more, was there whatever the driver had done by then.
        at_any_time = self._killed_at not in OF_DRIVERS and (self._is_late or self._met([f.RunAgain]))
        return (False, True) if at_any_time else (False,)

    @property
    def _killed_at(self) -> str:
        """The point, or the request, at which the driver was killed."""
        moments = (fault.when for fault in self.plan.faults if isinstance(fault.deed, f.KillDriver))
        return next((_request_of(when) or when.point for when in moments if isinstance(when, f.At)), "")

    @property
    def _is_late(self) -> bool:
        return self.copies or self._met(_WAKES_LATE)

    def _met(self, deeds: Collection[type[f.Deed]]) -> bool:
        return not {deed.__name__ for deed in deeds}.isdisjoint(self.report.deeds)

    @property
    def traces(self) -> tuple[str, ...]:
        """Where something of it may lie about until the next write, though it has succeeded.

        A store without folders takes what a task sends that comes too late; a disk that takes nothing does
        not let the driver clean up either.
        """
        if self._met(_DISKS):
            return (".robust", ".temp", ".heartbeat")
        late = self._is_late or (self._met([f.Slow]) and self._met([f.KillExecutor]))
        return (".robust", ".temp") if late and self.perils.store else ()

    @property
    def may_leave_an_empty_upload(self) -> bool:
        """Whether somebody may have died between the beginning of an upload and what tells of it."""
        at_requests = any(
            isinstance(fault.deed, f.KillExecutor) and fault.when in REQUESTS.values()
            for fault in self.plan.faults
        )
        return self.copies or at_requests or self._met([f.KillDriver, f.Partition, f.LoseShuffle])
