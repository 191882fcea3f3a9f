"""What a try has come to, in few words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fault_injection.spark.comparison.jobs import FIRST, INSERTED, MERGED, NEXT
from fault_injection.spark.comparison.subjects import Subject
from fault_injection.spark.report import Outcome

State = Mapping[str, int]
"""How many rows of which version a table must hold."""
RIGHT = "right"


def outcome(subject: Subject, ended: Outcome, found: Mapping[str, Any], orphans: int) -> dict[str, str | int]:
    """The facts of one try that are compared and counted."""
    job = "killed" if ended.killed else f"failed: {ended.error}" if ended.error else "done"
    blocked = bool(found["next"])
    return {
        "job": job,
        "at once": _of_all_ways(found["at once"], states(subject, job, more=False)),
        "next": found["next"],
        "afterwards": _of_all_ways(found["afterwards"], states(subject, job, more=not blocked)),
        "orphans": orphans,
    }


def states(subject: Subject, job: str, *, more: bool) -> list[State]:
    """What a table may hold after a write that ended so, and perhaps the next one."""
    first, end = FIRST
    before = {"1": end - first}
    loaded = MERGED if subject.merges else INSERTED
    after = {"2": loaded[1] - loaded[0]} if subject.merges else {**before, "2": loaded[1] - loaded[0]}
    possible = {"killed": [before, after], "done": [after]}.get(job, [before])
    return [{**state, "3": NEXT[1] - NEXT[0]} if more else state for state in possible]


def _of_all_ways(found: Mapping[str, Any], possible: list[State]) -> str:
    told = {way: judged(counted, possible) for way, counted in found.items()}
    if len(set(told.values())) == 1:
        return next(iter(told.values()))
    return "; ".join(f"{text} ({way})" for way, text in told.items())


def judged(counted: Mapping[str, Any], possible: list[State]) -> str:
    """What is wrong with the rows that were read."""
    if "error" in counted:
        return f"can't be read: {counted['error']}"
    told = [_against(counted, state) for state in possible]
    if "" in told:
        return RIGHT
    written = counted["versions"].get("2", [0])[0]
    if len(possible) > 1 and written:
        return f"a part of the write: {written:,} of {possible[-1]['2']:,} rows"
    return told[0]


def _against(counted: Mapping[str, Any], state: State) -> str:
    """The differences in words; nothing where there are none."""
    versions: dict[str, list[int]] = counted["versions"]
    lost = sum(max(0, count - versions.get(version, [0, 0])[1]) for version, count in state.items())
    twice = sum(found[0] for found in versions.values()) - counted["keys"]
    unwanted = sum(found[1] for version, found in versions.items() if version not in state)
    torn = sum(found[2] for found in versions.values())
    numbers = {"lost": lost, "twice": twice, "of a write that failed": unwanted, "torn": torn}
    return ", ".join(f"{number:,} rows {what}" for what, number in numbers.items() if number)
