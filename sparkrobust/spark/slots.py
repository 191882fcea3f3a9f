"""Step 4 of a write: the slots, allocated on the driver, and the way of each row to its slot.

A row's way is a row of a small table: by its key where the driver knows every key, else by its
partition, the file that holds its key, and a share of the hashes of the keys that no file holds.
Either is a pure function of the row's content, so a task that runs twice gets the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pyarrow as pa

from sparkrobust.core.file_ids import SizeLimits, Slot, spread_inserts
from sparkrobust.core.markers import Fingerprint
from sparkrobust.core.placement import pack, targets
from sparkrobust.core.view import BaseFile

NO_FILE = -1
HASH_SPACE = 1 << 30

_TASKS_WANTED = 8
_SMALL_TASK = 32 << 20
"""Bytes of files: a few tenths of a second of work, against some hundredths that a task's start takes."""


@dataclass
class _Draft:
    partition: str
    base: BaseFile | None
    rows: int


class SlotBook:
    """Collects the slots of a write.

    Parameters
    ----------
    new_prefix
        Makes the file-id prefix of a new file group.
    """

    def __init__(self, limits: SizeLimits, new_prefix: Callable[[], str]) -> None:
        self._limits = limits
        self._new_prefix = new_prefix
        self._drafts: list[_Draft] = []
        self._by_path: dict[str, int] = {}
        self._expected: list[tuple[frozenset[int], Fingerprint]] = []

    def for_file(self, base: BaseFile, rows: int) -> int:
        """The slot of an existing file group, which gets this many rows more."""
        index = self._by_path.get(base.path)
        if index is None:
            index = self._by_path[base.path] = len(self._drafts)
            self._drafts.append(_Draft(base.partition, base, 0))
        self._drafts[index].rows += rows
        return index

    def for_inserts(
        self, partition: str, count: int, small_files: Iterable[BaseFile]
    ) -> list[tuple[int, int]]:
        """(slot, rows) for the new rows of a partition."""
        fill, new = spread_inserts(count, small_files, self._limits)
        shares = [(self.for_file(base, rows), rows) for base, rows in fill]
        for rows in new:
            shares.append((len(self._drafts), rows))
            self._drafts.append(_Draft(partition, None, rows))
        return shares

    def expect(self, slots: Iterable[int], rows: Fingerprint) -> None:
        """These slots are going to get these rows together, besides others that were said."""
        self._expected.append((frozenset(slots), rows))

    def expected(self) -> list[tuple[frozenset[int], Fingerprint]]:
        """Sets of slots that have no slot in common, and the rows that each set is going to get."""
        set_of: dict[int, frozenset[int]] = {}
        rows_of: dict[frozenset[int], Fingerprint] = {}
        for slots, rows in self._expected:
            joined = {set_of[slot] for slot in slots if slot in set_of}
            for other in joined:
                rows = rows.plus(rows_of.pop(other))
            whole = slots.union(*joined)
            rows_of[whole] = rows
            set_of |= dict.fromkeys(whole, whole)
        return list(rows_of.items())

    def slots(self) -> tuple[Slot, ...]:
        return tuple(
            Slot(
                index=index,
                partition=draft.partition,
                base=draft.base,
                prefix=draft.base.file_id if draft.base else self._new_prefix(),
            )
            for index, draft in enumerate(self._drafts)
        )

    def __len__(self) -> int:
        return len(self._drafts)

    def rows(self, slot: int) -> int:
        return self._drafts[slot].rows

    def tasks(self) -> tuple[int, ...]:
        """The task of each slot."""
        return tuple(pack(self._weights(), _TASKS_WANTED, _SMALL_TASK))

    def is_small(self, most_bytes: int) -> bool:
        """Whether the slots are few, and their files at most so large together."""
        return len(self._drafts) <= _TASKS_WANTED and sum(self._weights()) <= most_bytes

    def _weights(self) -> list[int]:
        return [
            draft.rows * self._limits.record_bytes + (draft.base.size if draft.base else 0)
            for draft in self._drafts
        ]


def targets_of(tasks: tuple[int, ...]) -> list[int]:
    """For each slot, the number that brings its rows to its task."""
    by_task = targets(max(tasks, default=0) + 1)
    return [by_task[task] for task in tasks]


@dataclass(frozen=True, kw_only=True)
class Share:
    """Some rows of a partition: those whose key a file holds, or a range of hashes of the others."""

    partition: str
    file: int
    slot: int
    low: int = 0
    high: int = HASH_SPACE


def hash_ranges(shares: list[tuple[int, int]], partition: str) -> list[Share]:
    """Divide the hashes of a partition's new keys as the rows are divided among slots."""
    total = sum(rows for _, rows in shares)
    found, low, taken = [], 0, 0
    for slot, rows in shares:
        taken += rows
        high = HASH_SPACE * taken // total
        found.append(Share(partition=partition, file=NO_FILE, slot=slot, low=low, high=high))
        low = high
    return found


def share_table(shares: list[Share], tasks: tuple[int, ...], names: tuple[str, ...]) -> pa.Table:
    """The shares as columns: partition, file, low, high, slot, target."""
    goals = targets_of(tasks)
    columns = [
        pa.array([share.partition for share in shares], pa.string()),
        pa.array([share.file for share in shares], pa.int32()),
        pa.array([share.low for share in shares], pa.int64()),
        pa.array([share.high for share in shares], pa.int64()),
        pa.array([share.slot for share in shares], pa.int32()),
        pa.array([goals[share.slot] for share in shares], pa.int32()),
    ]
    return pa.Table.from_arrays(columns, names=list(names))
