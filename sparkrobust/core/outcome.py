"""What a write came to: the value that ``save`` returns."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class CommitOutcome(Enum):
    """How a write ended.  ``save`` returns for the first, and raises for the others."""

    COMMITTED = "Committed"
    CONFLICTED = "Conflicted"
    RETRYABLE = "Retryable"
    UNKNOWN = "Unknown"


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
    rolled_back: tuple[str, ...] = ()
    """Instants of earlier writes that had failed, and were rolled back first."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """By step."""

    @property
    def total_seconds(self) -> float:
        return sum(self.seconds.values())

    def __str__(self) -> str:
        if self.instant is None:
            return f"{self.operation} into {self.path}: ignored, there is a table"
        undone = f", {len(self.rolled_back)} failed writes rolled back" if self.rolled_back else ""
        return (
            f"{self.operation} into {self.path}: committed as {self.instant}; rows {self.inserted} inserted, "
            f"{self.updated} updated, {self.deleted} deleted; files {self.files_created} new, "
            f"{self.files_rewritten} rewritten; {self.total_seconds:.2f} s{undone}"
        )

    def _repr_html_(self) -> str:
        rows: list[tuple[str, object]] = [
            ("outcome", self.outcome.value if self.instant else "ignored, there is a table"),
            ("instant", self.instant),
            ("rows inserted / updated / deleted", f"{self.inserted} / {self.updated} / {self.deleted}"),
            ("files new / rewritten", f"{self.files_created} / {self.files_rewritten}"),
            ("bytes", self.bytes_written),
            *((f"seconds: {step}", f"{took:.3f}") for step, took in self.seconds.items()),
        ]
        cells = "".join(
            f"<tr><th>{html.escape(name)}</th><td>{html.escape(str(value))}</td></tr>" for name, value in rows
        )
        title = html.escape(f"{self.operation} into {self.path}")
        return f"<table><caption>{title}</caption>{cells}</table>"
