"""The driver's allocation of slots and file ids (RFC-79, "FileID generation").

A slot is the unit of a write that completes as a whole: one new file-id prefix, or one existing
file group.  Every id is made on the driver before the first task starts, or, where Spark alone
knows how many tasks there will be, is a pure function of a seed that the driver made: a task that
runs twice uses the same ids, whatever happened in between.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass

from sparkrobust.core.view import BaseFile


@dataclass(frozen=True, kw_only=True)
class Slot:
    """One unit of a write."""

    index: int
    partition: str
    base: BaseFile | None = None
    """The file to merge into; ``None`` for a new file group."""
    prefix: str
    """The file id's prefix (new group), or the whole file id (existing group)."""

    def file_id(self, sequence: int) -> str:
        """The id of the slot's n-th file: more than one only where a new group overflows its size."""
        if self.base is not None:
            return self.prefix
        return f"{self.prefix}-{sequence}"


def prefix_of(seed: str, task: int) -> str:
    """The prefix of the slot that task ``task`` of a bulk insert works on."""
    return str(uuid.uuid5(uuid.UUID(seed), str(task)))


@dataclass(frozen=True, kw_only=True)
class SizeLimits:
    """How large files should become."""

    max_file_bytes: int
    small_file_bytes: int
    record_bytes: int
    """What one record is expected to take."""
    records_per_new_file: int | None = None
    """Said by the user; derived from the sizes otherwise."""

    @property
    def records_per_file(self) -> int:
        if self.records_per_new_file is not None:
            return max(1, self.records_per_new_file)
        return max(1, self.max_file_bytes // max(1, self.record_bytes))


def spread_inserts(
    count: int, small_files: Iterable[BaseFile], limits: SizeLimits
) -> tuple[list[tuple[BaseFile, int]], list[int]]:
    """Where a partition's new records go: into its small files first, then into new groups.

    Returns
    -------
    fill
        (small file, records) for every small file that takes some, the smallest file first.
    new
        The number of records of each new group, as even as can be.
    """
    fill: list[tuple[BaseFile, int]] = []
    left = count
    for base in sorted(small_files, key=lambda f: (f.size, f.path)):
        if left <= 0:
            break
        if base.size >= limits.small_file_bytes:
            continue
        room = (limits.max_file_bytes - base.size) // max(1, limits.record_bytes)
        if room <= 0:
            continue
        taken = min(left, room)
        fill.append((base, taken))
        left -= taken
    if left <= 0:
        return fill, []
    groups = -(-left // limits.records_per_file)
    even, extra = divmod(left, groups)
    return fill, [even + (1 if i < extra else 0) for i in range(groups)]
