"""What a write came to: the value that ``save`` returns, and what is said on an error instead of one."""

from __future__ import annotations

import html
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from sparkrobust.core.write_status import NEW_FILE_GROUP, WriteStat
from sparkrobust.errors import (
    CommitOutcome,
    FencedError,
    HeartbeatLostError,
    InvalidInputError,
    LockError,
    TableNotFoundError,
    UnavailableError,
    UnsupportedTableError,
)

_TO_CHANGE_FIRST = (InvalidInputError, TableNotFoundError, UnsupportedTableError)
"""The same write would be refused again."""
_PASSING = (FencedError, HeartbeatLostError, LockError, UnavailableError)
"""What is wrong for a while, and helps to say even where no write was begun."""


def tell_undone(error: BaseException, *, path: str, instant: str | None = None) -> None:
    """Have an error say that nothing of the write that it ended is part of the table, or ever will be.

    What it says already stays.  An error that is not ours, as Spark's or an interrupt, gets the same
    attributes, and a note in its traceback.

    Parameters
    ----------
    instant
        The write's, if one was begun.
    """
    outcome = None
    if not isinstance(error, _TO_CHANGE_FIRST) and (instant is not None or isinstance(error, _PASSING)):
        outcome = CommitOutcome.RETRYABLE
    _tell(error, outcome, path, instant)


def tell_committed(error: BaseException, *, path: str, instant: str | None = None) -> None:
    """Have an error say that it came too late, whatever it said before: the write is durable."""
    if vars(error).get("outcome") is not None:
        vars(error)["outcome"] = CommitOutcome.COMMITTED
    _tell(error, CommitOutcome.COMMITTED, path, instant)


def _tell(error: BaseException, outcome: CommitOutcome | None, path: str, instant: str | None) -> None:
    said = vars(error)
    facts = {"outcome": outcome, "path": path, "instant": instant}
    is_new = "outcome" not in said
    said |= {name: value for name, value in facts.items() if said.get(name) is None}
    if is_new and hasattr(error, "add_note"):  # from Python 3.11 on
        which = f"the write {instant} into {path}" if instant else f"the write into {path}"
        durable = outcome is CommitOutcome.COMMITTED
        what = "is durable" if durable else "is undone: nothing of it is part of the table"
        error.add_note(f"sparkrobust: {which} {what}")


@dataclass(frozen=True, kw_only=True)
class WriteResult:
    """A write that is durable, or one that mode ``ignore`` left undone (``instant`` is ``None``)."""

    path: str
    operation: str
    outcome: CommitOutcome = CommitOutcome.COMMITTED
    instant: str | None = None
    completion: str | None = None
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    files_created: int = 0
    files_rewritten: int = 0
    partitions: int = 0
    bytes_written: int = 0
    mode: str = ""
    """How its files became visible: ``rename``, ``multipart``, ``copy``, or ``direct`` (fewer promises)."""
    slots: int = 0
    """Units of the write that completed as a whole."""
    slots_redone: int = 0
    """How often one of them was done again, since another writer was faster to change its file group."""
    attempts_reused: int = 0
    """Attempts that found their slot done, and wrote nothing."""
    attempts_fenced: int = 0
    """Attempts that had begun a file and were given up, as their begin markers tell at the end.

    They failed, their executor died, or others were faster and did not wait for them.  Some may run on,
    and nothing that they do counts.  Who found the write over before he had begun a file has left no
    trace, and is not among them; nor is anybody if the store did not answer when it was asked.
    """
    files_discarded: int = 0
    """Files of attempts that others were faster than; no reader ever saw one."""
    rolled_back: tuple[str, ...] = ()
    """Instants of earlier writes that had failed, and were rolled back first."""
    retries: int = 0
    """How often it was made again after a conflict with another writer."""
    earlier: bool = False
    """An earlier run had written it under the same write id; this one wrote nothing."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """By step."""

    @classmethod
    def of_stats(cls, stats: Collection[WriteStat], *, path: str, operation: str, **more: Any) -> WriteResult:
        """The result of a write that came to these files."""
        created = sum(1 for stat in stats if stat.prev_commit == NEW_FILE_GROUP)
        return cls(
            path=path,
            operation=operation,
            inserted=sum(stat.num_inserts for stat in stats),
            updated=sum(stat.num_update_writes for stat in stats),
            deleted=sum(stat.num_deletes for stat in stats),
            files_created=created,
            files_rewritten=len(stats) - created,
            partitions=len({stat.partition_path for stat in stats}),
            bytes_written=sum(stat.file_size_in_bytes for stat in stats),
            **more,
        )

    @property
    def total_seconds(self) -> float:
        return sum(self.seconds.values())

    def __str__(self) -> str:
        if self.instant is None:
            return f"{self.operation} into {self.path}: ignored, there is a table"
        if self.earlier:
            return f"{self.operation} into {self.path}: an earlier run has committed it as {self.instant}"
        undone = f", {len(self.rolled_back)} failed writes rolled back" if self.rolled_back else ""
        if self.attempts_reused or self.files_discarded:
            undone += f", {self.attempts_reused} attempts reused, {self.files_discarded} files discarded"
        if self.attempts_fenced:
            undone += f", {self.attempts_fenced} attempts fenced"
        if self.slots_redone:
            undone += f", {self.slots_redone} slots redone"
        return (
            f"{self.operation} into {self.path}: committed as {self.instant}; rows {self.inserted} inserted, "
            f"{self.updated} updated, {self.deleted} deleted; files {self.files_created} new, "
            f"{self.files_rewritten} rewritten; {self.total_seconds:.2f} s{undone}"
            + (", in mode direct" if self.mode == "direct" else "")
        )

    def _repr_html_(self) -> str:
        rows: list[tuple[str, object]] = [
            ("outcome", self.outcome.value if self.instant else "ignored, there is a table"),
            ("instant", self.instant),
            ("rows inserted / updated / deleted", f"{self.inserted} / {self.updated} / {self.deleted}"),
            ("files new / rewritten", f"{self.files_created} / {self.files_rewritten}"),
            ("bytes", self.bytes_written),
            ("mode", self.mode),
            (
                "slots / attempts reused / files discarded",
                f"{self.slots} / {self.attempts_reused} / {self.files_discarded}",
            ),
            *([("attempts fenced", self.attempts_fenced)] if self.attempts_fenced else ()),
            *([("slots redone", self.slots_redone)] if self.slots_redone else ()),
            *((f"seconds: {step}", f"{took:.3f}") for step, took in self.seconds.items()),
        ]
        cells = "".join(
            f"<tr><th>{html.escape(name)}</th><td>{html.escape(str(value))}</td></tr>" for name, value in rows
        )
        title = html.escape(f"{self.operation} into {self.path}")
        return f"<table><caption>{title}</caption>{cells}</table>"
