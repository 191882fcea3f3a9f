"""Upserts without Spark: a driver step by step, and the real handles in place of its tasks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sparkrobust.coordinator.table import HudiTable
from sparkrobust.coordinator.transaction import Transaction
from sparkrobust.core.file_ids import Slot
from sparkrobust.core.instant import Action
from sparkrobust.core.markers import CompletionMarker, Fingerprint, Terms
from sparkrobust.core.names import RECORD_KEY
from sparkrobust.core.redo import Reads
from sparkrobust.core.write_status import OperationType
from sparkrobust.formats.schema import TableSchema
from sparkrobust.handles import work
from sparkrobust.handles.base_file import matching_keys
from sparkrobust.handles.plan import KEY, SLOT, Attempt, FileOptions, Rules, SlotResult, WritePlan

PARTITION = "p1"
ROWS = pa.schema([("id", pa.string()), ("by", pa.string())])
SCHEMA = TableSchema.of_arrow(ROWS, "t").to_json()
_RULES = Rules(combine=True, match=True, delete=False)
_FILES = FileOptions(codec="none", max_file_bytes=1 << 20, row_group_bytes=1 << 18)


class Upsert:
    """Rows of these keys, each of which says by whom; planned from the table as it is now.

    Parameters
    ----------
    fills
        New keys go to the first file that is there, and not to a new one.
    """

    def __init__(
        self,
        table: HudiTable,
        by: str,
        keys: Sequence[str],
        *,
        fills: bool = False,
        operation: OperationType = OperationType.UPSERT,
        schema: str = SCHEMA,
    ) -> None:
        self.table, self.by = table, by
        table.reload()
        self.slots: list[Slot] = []
        self.keys: list[list[str]] = []
        """Of each slot."""
        new, bases = list(keys), sorted(table.base_files([PARTITION]), key=lambda base: base.name.instant)
        for base in bases:
            held = [keys[at] for at in matching_keys(table.storage, base, pa.array(keys)).to_pylist()]
            new = [key for key in new if key not in held]
            if held or (fills and base is bases[0]):
                self._slot(held, base=base, prefix=base.file_id)
        if new and fills:
            self.keys[0] += new
        elif new:
            self._slot(new, prefix=table.ids.uuid())
        self.planned = len(self.slots)
        self.transaction = Transaction(table, Terms(action=Action.COMMIT, operation=operation, schema=schema))
        self.attempts: list[int] = []
        """The slots that were written, one after the other."""

    def _slot(self, keys: list[str], **where: Any) -> None:
        self.slots.append(Slot(index=len(self.slots), partition=PARTITION, **where))
        self.keys.append(keys)

    def begin(self, *, counted: bool = False) -> Upsert:
        self.transaction.begin(slots=len(self.slots), counted=counted)
        return self

    def write(self, slots: Iterable[int] | None = None) -> Upsert:
        """What the tasks do."""
        for slot in range(len(self.slots)) if slots is None else slots:
            assert self.attempt(slot).problem is None
        return self

    def attempt(self, slot: int) -> SlotResult:
        self.attempts.append(slot)
        plan = WritePlan(
            storage=self.table.storage,
            control=self.transaction.folder,
            schema=ROWS,
            rules=_RULES,
            files=_FILES,
            slots=tuple(self.slots),
            tasks=tuple(range(len(self.slots))),
            key_hashes=True,
        )
        keys = self.keys[slot]
        rows = pa.table([keys, [self.by] * len(keys)], schema=ROWS)
        rows = rows.append_column(KEY, pa.array(keys, pa.string()))
        rows = rows.append_column(SLOT, pa.array([slot] * len(keys), pa.int32()))
        attempt = Attempt.of(slot, stage=0, ids=self.table.ids)
        (result,) = work.run(plan, attempt, iter(rows.to_batches()))
        return result

    def redo(self, reads: Reads = Reads.WHICH_KEYS_ARE_NEW) -> dict[int, int]:
        """Look for what others have changed, and write that once more: the slots, and their new numbers."""
        again = self.transaction.redo(self.slots, reads)
        for old, new in again.items():
            self.slots.append(new)
            self.keys.append(self.keys[old])
        self.write([new.index for new in again.values()])
        return {old: new.index for old, new in again.items()}

    def finalize(self) -> list[CompletionMarker]:
        return self.transaction.finalize(len(self.slots))

    def commit(self) -> Upsert:
        self.transaction.commit(self.finalize())
        self.transaction.clean_up()
        return self

    @property
    def expected(self) -> list[tuple[frozenset[int], Fingerprint]]:
        """The rows of the slots as they were planned."""
        return [(frozenset({slot}), Fingerprint(rows=len(self.keys[slot]))) for slot in range(self.planned)]


def upsert(table: HudiTable, by: str, keys: Sequence[str], **more: Any) -> Upsert:
    """A whole write."""
    return Upsert(table, by, keys, **more).begin().write().commit()


def rows(table: HudiTable) -> dict[str, str]:
    """Key → by whom, of the table as a reader sees it."""
    table.reload()
    found: list[tuple[str, str]] = []
    for base in table.base_files([PARTITION]):
        with table.storage.open(base.path) as source:
            read = pq.read_table(source, columns=[RECORD_KEY, "by"])
        found += zip(*(column.to_pylist() for column in read.columns), strict=True)
    assert len(found) == len(dict(found)), "a key stands twice"
    return dict(found)


OTHER_SCHEMA = TableSchema.of_arrow(pa.schema([*ROWS, ("more", pa.string())]), "t").to_json()
SAME_BUT_FOR_ITS_NAME = TableSchema.of_arrow(ROWS, "other").to_json()
