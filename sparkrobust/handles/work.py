"""A task of a write: rows of one or several slots in, a result for each slot out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from sparkrobust.core.file_ids import Slot
from sparkrobust.core.written import WrittenFile
from sparkrobust.errors import (
    CorruptTableError,
    InvalidInputError,
    PermissionDeniedError,
    RobustWriteError,
    StorageFullError,
)
from sparkrobust.handles.attempt import SlotAttempt, Write, is_open
from sparkrobust.handles.bulk import bulk
from sparkrobust.handles.create import create
from sparkrobust.handles.merge import merge
from sparkrobust.handles.plan import SLOT, Attempt, SlotResult, WritePlan
from sparkrobust.handles.rows import newest_of_each_key
from sparkrobust.handles.spool import Spool, in_chunks

_CHUNK_ROWS = 64 * 1024
_SLOT_THREADS = 2

_FINAL: tuple[type[RobustWriteError], ...] = (
    InvalidInputError,
    CorruptTableError,
    PermissionDeniedError,
    StorageFullError,
)
"""Failures that another attempt would meet again: told to the driver instead of retried by Spark."""


def run(plan: WritePlan, attempt: Attempt, batches: Iterator[pa.RecordBatch]) -> Iterator[SlotResult]:
    """Write what this task was given; one result for each of its slots.

    Raises
    ------
    FencedError
        The write is over: it was committed, or given up.
    """
    look = is_open(plan)

    def one_slot(index: int, tables: Iterable[pa.Table], write: Write) -> SlotResult:
        slot = SlotAttempt(plan=plan, attempt=attempt, slot=index, open_gate=look)
        try:
            return slot.run(tables, write)
        except _FINAL as error:
            return SlotResult(slot=index, problem=(type(error).__name__, str(error), error.path))

    tables = in_chunks(batches, _CHUNK_ROWS)
    if not plan.slots:
        yield one_slot(attempt.task, tables, lambda rows: bulk(plan, attempt, rows))
        return
    first = next(tables, None)
    if first is None:
        return
    tables = chain([first], tables)
    one = first[SLOT][0].as_py()
    if plan.tasks.count(plan.tasks[one]) == 1:
        yield one_slot(one, tables, lambda rows: _slot(plan, attempt, plan.slots[one], rows))
        return
    with Spool() as spool:
        for table in tables:
            spool.add(table)
        whole = spool.table()
        assert whole is not None

        def one_of_many(index: int) -> SlotResult:
            rows = whole.filter(pc.equal(whole[SLOT], index))
            return one_slot(index, [rows], lambda rows: _slot(plan, attempt, plan.slots[index], rows))

        # They are small, and much of each is waiting for the store.
        slots = sorted(pc.unique(whole[SLOT]).to_pylist())
        yield from attempt.hands.map(one_of_many, slots, most=_SLOT_THREADS)


def _slot(plan: WritePlan, attempt: Attempt, slot: Slot, tables: Iterable[pa.Table]) -> list[WrittenFile]:
    tables = _of_slot(slot, tables)
    if slot.base is not None:
        return merge(plan, attempt, slot, tables)
    if plan.rules.combine:
        with Spool() as spool:
            for table in tables:
                spool.add(table)
            return create(plan, attempt, slot, _combined(plan, spool.table()))
    return create(plan, attempt, slot, tables)


def _combined(plan: WritePlan, table: pa.Table | None) -> Iterator[pa.Table]:
    if table is None:
        return
    keep = newest_of_each_key(table, plan.rules.ordering)
    low = 0
    for batch in table.to_batches():
        piece = pa.Table.from_batches([batch])
        yield piece if keep is None else piece.filter(keep.slice(low, batch.num_rows))
        low += batch.num_rows


def _of_slot(slot: Slot, tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    for table in tables:
        if pc.any(pc.not_equal(table[SLOT], slot.index)).as_py():
            raise AssertionError(f"rows of other slots came to the task of slot {slot.index}")
        yield table
