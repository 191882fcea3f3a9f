"""The fault model: what may go wrong, whether a write survives it, and what is promised then.

``docs/guarantees.md`` is generated from here, and the simulated world injects what says how.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Fault(Enum):
    """What may happen to one storage call."""

    # Each is there once; what Enum has in its place goes by the name, and is asked for at every step.
    __hash__ = object.__hash__

    NONE = "none"
    KILLED_BEFORE = "killed before"
    KILLED_AFTER = "killed after"
    DROPPED = "dropped"
    """It never arrives; the caller waits in vain."""
    ANSWER_LOST = "answer lost"
    LATE = "late"
    """It arrives long after the caller has stopped waiting."""
    TWICE = "twice"
    """It arrives twice, and the second answer is the one that comes back."""
    TORN = "torn"
    """The caller is killed in the middle of it, and a part of what it wrote is there."""
    STALE = "stale listing"
    """The newest entry is missing in it."""
    BUSY = "503 or 409"
    """The store says that it is busy, or in conflict, and has done nothing; the client repeats it."""
    BUSY_AFTER = "503 afterwards"
    """The store has done it and says that it is busy; the client repeats it."""


class Verdict(Enum):
    """What becomes of a write that meets the fault."""

    SURVIVED = "the write goes on"
    FAILED_CLEAN = "the write fails, and the table is as it was"
    SETTLED_LATER = "the next write, or recover(), finishes the write or undoes it"
    OUT_OF_SCOPE = "nothing is promised"


@dataclass(frozen=True, kw_only=True)
class FaultClass:
    """One thing that goes wrong."""

    name: str
    where: str
    verdict: Verdict
    then: str
    """What holds."""
    simulated: tuple[str, ...] = ()
    """The faults and stories of the simulated world that show it."""


def _by(*faults: Fault | str) -> tuple[str, ...]:
    return tuple(fault if isinstance(fault, str) else fault.value for fault in faults)


FAULTS: tuple[FaultClass, ...] = (
    FaultClass(
        name="a task raises, its process exits, its executor is killed",
        where="anywhere in the write stage",
        verdict=Verdict.SURVIVED,
        then="another attempt writes the slot, or serves the marker of the one that had finished",
        simulated=_by(Fault.KILLED_BEFORE, Fault.KILLED_AFTER),
    ),
    FaultClass(
        name="two attempts of a task run at once (speculation, a stage that is run again, a lost executor)",
        where="the write stage",
        verdict=Verdict.SURVIVED,
        then="the first completion marker wins; the other attempt discards its files and serves the winner",
        simulated=_by("any: speculation"),
    ),
    FaultClass(
        name="a task outlives its write",
        where="after the gate was closed, after the commit, after a rollback",
        verdict=Verdict.SURVIVED,
        then="it finds the gate closed, or its folder gone; what it uploads is never completed, and swept",
        simulated=_by("late-tasks", "same-time-again"),
    ),
    FaultClass(
        name="the write plan is run again after the write was finalized",
        where="after finalize, after the commit",
        verdict=Verdict.SURVIVED,
        then="statuses are served from the markers, or made again from the files; nothing is written",
    ),
    FaultClass(
        name="the input gives other rows when it is read again",
        where="upsert, insert, delete",
        verdict=Verdict.FAILED_CLEAN,
        then="rows are counted and their keys summed, before and in every slot: IndeterminateInputError",
    ),
    FaultClass(
        name="the input gives other rows when a part of it is made again",
        where="bulk_insert, below a shuffle",
        verdict=Verdict.SURVIVED,
        then="where the plan goes by chance or by the order of rows, they are stored before they are "
        "written, and refused if a part of them was made again meanwhile (IndeterminateInputError); or they "
        "are counted",
    ),
    FaultClass(
        name="the driver dies",
        where="before the commit is decided",
        verdict=Verdict.SETTLED_LATER,
        then="it is rolled back; recover(), or the same write id, commits it if every slot was done",
        simulated=_by(Fault.KILLED_BEFORE, Fault.KILLED_AFTER),
    ),
    FaultClass(
        name="the driver dies",
        where="after the commit was decided",
        verdict=Verdict.SETTLED_LATER,
        then="the write is finished by whoever comes next; until then its rows are not seen",
        simulated=_by(Fault.KILLED_BEFORE, Fault.KILLED_AFTER),
    ),
    FaultClass(
        name="the driver sleeps, and others take it for dead",
        where="anywhere",
        verdict=Verdict.SURVIVED,
        then="all go by one decision: it fails cleanly, or finds its write committed",
        simulated=_by("sleepers-decide", "archived-while-asleep"),
    ),
    FaultClass(
        name="several writers write at once",
        where="optimistic_concurrency_control, one lock for all",
        verdict=Verdict.SURVIVED,
        then="of two that change the same file group, or insert the same new key, the later one is refused, "
        "and may try again, or write such file groups alone once more; who lives is not rolled back; "
        "pending table services go first",
        simulated=_by("many-writers", "one-row", "overtaken", "one-new-key", "services"),
    ),
    FaultClass(
        name="what others did while a write was planned, or ran, is archived, and older files are cleaned",
        where="optimistic_concurrency_control, beside Hudi's cleaner and archiver",
        verdict=Verdict.FAILED_CLEAN,
        then="what it can't tell any more, or lacks a file for, is a conflict, after which it may try again",
        simulated=_by("cleaned-while-asleep"),
    ),
    FaultClass(
        name="a writer loses the lock while it holds it (it sleeps, the lock expires, its session ends)",
        where="optimistic_concurrency_control, anywhere under the lock",
        verdict=Verdict.SURVIVED,
        then="whoever gets the lock ends what is about to be decided under it, and then looks what there is",
        simulated=_by("thieves"),
    ),
    FaultClass(
        name="a driver dies between a copy and the deletion of what it copied from",
        where="a store that publishes by copying",
        verdict=Verdict.SETTLED_LATER,
        then="whoever comes next takes a turn, which outdoes all who slept before: nothing comes back",
        simulated=_by("source-left-behind"),
    ),
    FaultClass(
        name="a request to the store is lost, or its answer is",
        where="every call",
        verdict=Verdict.SURVIVED,
        then="calls are repeated; where the effect matters, a look tells whether it had come through",
        simulated=_by(Fault.DROPPED, Fault.ANSWER_LOST),
    ),
    FaultClass(
        name="a request arrives twice, or long after its sender has stopped waiting",
        where="every call that changes something",
        verdict=Verdict.SURVIVED,
        then="puts are conditional, and publishing consumes its source: nothing happens a second time",
        simulated=_by(Fault.TWICE, Fault.LATE),
    ),
    FaultClass(
        name="the store answers 503 or 409, before or after it did what was asked",
        where="every call to an object store",
        verdict=Verdict.SURVIVED,
        then="the client repeats it; a refusal (412) after that is held against the mark of our own object",
        simulated=_by(Fault.BUSY, Fault.BUSY_AFTER),
    ),
    FaultClass(
        name="a writer is killed in the middle of a file",
        where="a disk",
        verdict=Verdict.SURVIVED,
        then="only staged files can be torn, and no marker names one: objects are put whole or not at all",
        simulated=_by(Fault.TORN),
    ),
    FaultClass(
        name="a listing comes from a cache, and lacks the newest entry",
        where="begin markers, staged files",
        verdict=Verdict.FAILED_CLEAN,
        then="markers are asked for by their names; a staged file that is not listed fails the write, "
        "and a begin marker that is not leaves something to sweep",
        simulated=_by(Fault.STALE),
    ),
    FaultClass(
        name="a listing comes from a cache, and lacks the newest entry",
        where="the timeline, the control folders, a partition",
        verdict=Verdict.OUT_OF_SCOPE,
        then="a pending write, or that it is one of ours, would not be seen",
    ),
    FaultClass(
        name="the store is away for longer than requests are repeated",
        where="before the commit is decided",
        verdict=Verdict.FAILED_CLEAN,
        then="UnavailableError; if ABORT can't be put either, CommitUnknownError",
        simulated=_by(Fault.DROPPED),
    ),
    FaultClass(
        name="the disk is full, a right is missing",
        where="anywhere before the decision",
        verdict=Verdict.FAILED_CLEAN,
        then="the write is rolled back, the next one works; where there are no folders it may be left to "
        "that one: CommitUnknownError",
    ),
    FaultClass(
        name="a writer of Hudi's rolls the write back",
        where="while our driver is dead, and nothing that it sent is on its way",
        verdict=Verdict.SURVIVED,
        then="what had become visible of it goes, and the properties of an overwrite come back",
        simulated=_by("any: hudi"),
    ),
    FaultClass(
        name="a writer of Hudi's plans to roll the write back",
        where="while our driver sleeps, or is dead",
        verdict=Verdict.FAILED_CLEAN,
        then="who finds the plan under the lock does not commit the write, nor finish it",
    ),
    FaultClass(
        name="a writer of Hudi's commits under the same lock",
        where="to the same file groups, while our driver is dead that had decided",
        verdict=Verdict.FAILED_CLEAN,
        then="who wants to finish the write finds out, and undoes it; nobody was told that it is durable",
    ),
    FaultClass(
        name="a writer that shares no lock rolls a living write back",
        where="between the last look and the commit file",
        verdict=Verdict.OUT_OF_SCOPE,
        then="it is noticed afterwards, and said: CommitUnknownError",
    ),
    FaultClass(
        name="a store that is not consistent: what was put is not there, two conditional puts both win",
        where="every call",
        verdict=Verdict.OUT_OF_SCOPE,
        then="the conformance suite in sparkrobust.testing finds such stores",
    ),
    FaultClass(
        name="somebody deletes or changes files of the table by hand",
        where="anywhere",
        verdict=Verdict.OUT_OF_SCOPE,
        then="a file that is gone or torn is named: CorruptTableError",
    ),
)
