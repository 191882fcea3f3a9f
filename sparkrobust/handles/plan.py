"""What crosses to executors, and what comes back: small, versioned, plain values."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from sparkrobust.core.file_ids import Slot
from sparkrobust.core.names import ControlFolder
from sparkrobust.core.write_status import WriteStat
from sparkrobust.errors import InternalError
from sparkrobust.storage.contract import StagedFile, Storage
from sparkrobust.world import Ids

PLAN_VERSION = 1

# The columns that the pipeline adds to the user's rows on their way to a handle.
KEY = "__sr_key"
PATH = "__sr_path"
SLOT = "__sr_slot"
TARGET = "__sr_target"
SEQUENCE = "__sr_sequence"
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
    seed: str = ""
    """From which a bulk insert's tasks derive their file ids."""
    version: int = PLAN_VERSION


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One run of one task."""

    task: int
    token: str
    """The write token in the names of all files that it writes."""

    @classmethod
    def of(cls, task: int, *, stage: int, ids: Ids) -> Attempt:
        """A new attempt, with a token that no other one has."""
        return cls(task=task, token=f"{task}-{stage}-{ids.number()}")


@dataclass(frozen=True, kw_only=True)
class WrittenFile:
    """A data file that a task staged."""

    stat: WriteStat
    staged: StagedFile


@dataclass(frozen=True, kw_only=True)
class SlotResult:
    """What became of one slot: its files, or what was wrong with its rows."""

    slot: int
    files: Sequence[WrittenFile] = ()
    problem: tuple[str, str, str | None] | None = None
    """(error class, message, path) of a failure that no retry can mend."""

    def to_json(self) -> str:
        return json.dumps(
            {
                "version": PLAN_VERSION,
                "slot": self.slot,
                "problem": self.problem,
                "files": [
                    {
                        "stat": file.stat.to_plain(),
                        "final": file.staged.final_path,
                        "token": file.staged.token,
                        "size": file.staged.size,
                    }
                    for file in self.files
                ],
            }
        )

    @classmethod
    def from_json(cls, text: str) -> SlotResult:
        plain = json.loads(text)
        if plain["version"] != PLAN_VERSION:
            raise InternalError(
                f"a task answered in version {plain['version']}, this driver speaks {PLAN_VERSION}",
                hint="executors and driver must have the same sparkrobust",
            )
        return cls(
            slot=plain["slot"],
            problem=tuple(plain["problem"]) if plain["problem"] else None,
            files=[
                WrittenFile(
                    stat=WriteStat.from_plain(file["stat"]),
                    staged=StagedFile(final_path=file["final"], token=file["token"], size=file["size"]),
                )
                for file in plain["files"]
            ],
        )
