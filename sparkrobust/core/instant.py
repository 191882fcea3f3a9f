"""What stands on a timeline: actions, states, instants.  Values only; the names are in ``names``."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


def is_instant_time(text: str) -> bool:
    """Whether a name is an instant's: other digits than ASCII's make none."""
    return text.isascii() and text.isdigit()


class InstantTime(str):
    """The time that names an instant: digits, compared as text, as Hudi does."""

    __slots__ = ()

    def __new__(cls, text: str) -> InstantTime:
        if not is_instant_time(text):
            raise ValueError(f"not an instant time: {text!r}")
        return super().__new__(cls, text)


class Action(Enum):
    """What an instant does; the value is the word in its file names."""

    COMMIT = "commit"
    DELTA_COMMIT = "deltacommit"
    REPLACE_COMMIT = "replacecommit"
    CLUSTERING = "clustering"
    COMPACTION = "compaction"
    LOG_COMPACTION = "logcompaction"
    CLEAN = "clean"
    ROLLBACK = "rollback"
    SAVEPOINT = "savepoint"
    RESTORE = "restore"
    INDEXING = "indexing"

    @property
    def when_complete(self) -> Action:
        """The action that the completed file is named after."""
        return _COMPLETES_AS.get(self, self)


_COMPLETES_AS = {
    Action.CLUSTERING: Action.REPLACE_COMMIT,
    Action.COMPACTION: Action.COMMIT,
    Action.LOG_COMPACTION: Action.DELTA_COMMIT,
}

WRITES = frozenset({Action.COMMIT, Action.DELTA_COMMIT, Action.REPLACE_COMMIT})
"""The actions that, complete, say which files make up the table."""


class State(Enum):
    """How far an instant has come, in that order."""

    REQUESTED = 0
    INFLIGHT = 1
    COMPLETED = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Instant:
    """One action on the timeline, in the highest state that its files show."""

    time: InstantTime
    action: Action
    state: State
    completion: InstantTime | None = None

    @property
    def pending(self) -> bool:
        return self.state is not State.COMPLETED

    def __str__(self) -> str:
        return f"{self.time} ({self.action.value}, {self.state.name.lower()})"
