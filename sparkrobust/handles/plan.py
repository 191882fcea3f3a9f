"""What crosses to executors, and what comes back: small, versioned, plain values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa

from sparkrobust.core.file_ids import Slot
from sparkrobust.core.markers import CompletionMarker, Fingerprint
from sparkrobust.core.names import ControlFolder
from sparkrobust.core.written import WrittenFile
from sparkrobust.errors import InternalError
from sparkrobust.storage.contract import Storage
from sparkrobust.world import Hands, Ids

PLAN_VERSION = 4

# The columns that the pipeline adds to the user's rows on their way to a handle.
KEY = "__sr_key"
PATH = "__sr_path"
SLOT = "__sr_slot"
TARGET = "__sr_target"
SEQUENCE = "__sr_sequence"
FINGERPRINT = "__sr_fingerprint"
"""A hash of the row's key, where a second reading of the input may give other rows."""
RESERVED_PREFIX = "__sr_"


@dataclass(frozen=True, kw_only=True)
class Derived:
    """Which of a row's key and path equal columns of the user and need not travel beside them."""

    key: str | None = None
    """The column that is the key; without one, the key comes as a column of its own."""
    path: str | None = None
    """The column that is the path, ``""`` if all rows have the empty path; as with the key."""


@dataclass(frozen=True, kw_only=True)
class FileOptions:
    """How data files are written."""

    codec: str
    max_file_bytes: int
    row_group_bytes: int
    """Of rows in memory; compressed they are a fraction of it."""
    page_bytes: int = 1 << 20
    dictionary: bool = True


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What happens when an incoming row meets another one of its key."""

    combine: bool
    """Only one of several incoming rows of a key is kept."""
    match: bool
    """Rows of the base file are looked up by key; else the incoming rows are appended."""
    delete: bool
    """The incoming rows are keys to delete."""
    ordering: tuple[str, ...] = ()
    """The fields by which the larger row wins; without any, the later one does."""


@dataclass(frozen=True, kw_only=True)
class WritePlan:
    """One write, as its tasks see it."""

    storage: Storage
    control: ControlFolder
    schema: pa.Schema
    """Of the table's rows, without meta columns."""
    rules: Rules
    files: FileOptions
    slots: tuple[Slot, ...] = ()
    """All slots; empty for a bulk insert, whose slots are those of its tasks."""
    tasks: tuple[int, ...] = ()
    """The task of each slot."""
    expected: Mapping[int, Fingerprint] = field(default_factory=dict)
    """By slot, which rows it must get, where that is known."""
    seed: str = ""
    """From which a bulk insert's tasks derive their file ids."""
    reuse: bool = True
    """A task that comes after the write was finalized serves what was written; else it fails."""
    key_hashes: bool = False
    """The markers tell which keys were inserted, for several writers."""
    version: int = PLAN_VERSION

    def with_again(self, again: Mapping[int, Slot]) -> WritePlan:
        """The same with slots that are done in the place of others, by the numbers of those.

        Slots that share a task go on sharing one, which is none of those that were.
        """
        before = [self.tasks[old] for old in again]
        task = {one: max(self.tasks) + 1 + number for number, one in enumerate(sorted(set(before)))}
        rows = {new.index: self.expected[old] for old, new in again.items() if old in self.expected}
        return replace(
            self,
            slots=(*self.slots, *again.values()),
            tasks=(*self.tasks, *(task[one] for one in before)),
            expected={**self.expected, **rows},
        )


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One run of one task."""

    task: int
    token: str
    """The write token in the names of all files that it writes."""
    hands: Hands = field(default_factory=Hands)

    @classmethod
    def of(cls, task: int, *, stage: int, ids: Ids) -> Attempt:
        """A new attempt, with a token that no other one has."""
        return cls(task=task, token=f"{task}-{stage}-{ids.number()}")


@dataclass(frozen=True, kw_only=True)
class SlotResult:
    """What became of one slot, as a task tells it: a hint, since what counts are the markers."""

    slot: int
    attempt: str = ""
    """The token of the attempt that tells it."""
    marker: CompletionMarker | None = None
    reused: bool = False
    """The marker was there before this attempt wrote anything."""
    discarded: int = 0
    """Files that this attempt wrote, and threw away since another one was faster."""
    problem: tuple[str, str, str | None] | None = None
    """(error class, message, path) of a failure that no retry can mend."""

    @property
    def files(self) -> tuple[WrittenFile, ...]:
        """What the slot came to."""
        return self.marker.files if self.marker else ()

    def to_json(self) -> str:
        # The driver reads the hashes of keys where they are safe, in the marker itself.
        marker = self.marker and self.marker.without_keys()
        return json.dumps(
            {
                "version": PLAN_VERSION,
                "slot": self.slot,
                "attempt": self.attempt,
                "marker": marker and marker.to_plain(),
                "reused": self.reused,
                "discarded": self.discarded,
                "problem": self.problem,
            }
        )

    @classmethod
    def from_json(cls, text: str, control: ControlFolder) -> SlotResult:
        plain = json.loads(text)
        if plain["version"] != PLAN_VERSION:
            raise InternalError(
                f"a task answered in version {plain['version']}, this driver speaks {PLAN_VERSION}",
                hint="executors and driver must have the same sparkrobust",
            )
        slot, marker = plain["slot"], plain["marker"]
        return cls(
            slot=slot,
            attempt=plain["attempt"],
            marker=CompletionMarker.from_plain(marker, control, slot) if marker else None,
            reused=plain["reused"],
            discarded=plain["discarded"],
            problem=tuple(plain["problem"]) if plain["problem"] else None,
        )
