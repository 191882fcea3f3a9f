"""What was injected into a run, what it hit, what Spark made of it, and how the job ended."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Injected:
    """A fault that has happened, or that was over."""

    fault: str
    seconds: float
    what: str
    deed: str = ""
    """The kind of fault; nothing at its end."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a job has ended: with a value, with an error, or not at all."""

    value: Any = None
    error: str = ""
    """The exception's class."""
    message: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)
    """The exception's own attributes."""
    killed: bool = False

    @classmethod
    def of(cls, answer: Mapping[str, Any], folder: Path) -> Outcome:
        if not answer:
            return cls(killed=True)
        if "error" in answer:
            known = dict(answer["error"])
            return cls(error=known.pop("type"), message=known.pop("message"), facts=known)
        return cls(value=answer["value"])

    def __str__(self) -> str:
        if self.killed:
            return "killed"
        return f"{self.error}: {self.message}" if self.error else f"returned {self.value!r}"


@dataclass(frozen=True, kw_only=True)
class Reaction:
    """What Spark's own event log says of the run."""

    executors_lost: tuple[str, ...] = ()
    tasks_failed: tuple[str, ...] = ()
    """The reason of each task's end that was no success."""
    stages_repeated: int = 0
    copies: int = 0
    """Tasks that were started a second time while the first one ran."""


def reaction(events: bytes) -> Reaction:
    """Read the event log; its last line may be half written."""
    lost, failed, repeated, copies = [], [], 0, 0
    for line in events.splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        kind = event.get("Event")
        if kind == "SparkListenerExecutorRemoved":
            lost.append(f"{event['Executor ID']}: {event['Removed Reason']}")
        elif kind == "SparkListenerTaskStart":
            # At its start: a copy that loses may not have ended when its job has.
            copies += bool(event["Task Info"]["Speculative"])
        elif kind == "SparkListenerTaskEnd":
            reason = event["Task End Reason"]["Reason"]
            if reason != "Success":
                failed.append(reason)
        elif kind == "SparkListenerStageSubmitted":
            repeated += event["Stage Info"]["Stage Attempt ID"] > 0
    return Reaction(
        executors_lost=tuple(lost), tasks_failed=tuple(failed), stages_repeated=repeated, copies=copies
    )


@dataclass(frozen=True, kw_only=True)
class Report:
    """One run."""

    outcome: Outcome
    injected: tuple[Injected, ...]
    notes: Mapping[str, str]
    """What who was hit had to say."""
    reaction: Reaction
    seconds: float

    @property
    def deeds(self) -> list[str]:
        """What kinds of faults have happened."""
        return [one.deed for one in self.injected if one.deed]

    def lines(self) -> Iterator[str]:
        """For a person."""
        for one in self.injected:
            yield f"{one.seconds:7.2f} s  {one.fault}: {one.what}"
        for name, text in self.notes.items():
            yield f"           {name}: {text}"
        for text in self.reaction.executors_lost:
            yield f"           Spark lost executor {text.splitlines()[0]}"
        if self.reaction.tasks_failed:
            yield f"           Spark's tasks ended with {', '.join(self.reaction.tasks_failed)}"
        if self.reaction.stages_repeated or self.reaction.copies:
            yield (
                f"           Spark repeated {self.reaction.stages_repeated} stages "
                f"and started {self.reaction.copies} copies of tasks"
            )
        yield f"{self.seconds:7.2f} s  the job: {self.outcome}"

    def __str__(self) -> str:
        return "\n".join(self.lines())
