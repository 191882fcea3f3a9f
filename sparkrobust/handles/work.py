"""A task of a write: rows of one or several slots in, a result for each slot out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.compute as pc

from sparkrobust.core.file_ids import Slot
from sparkrobust.errors import CorruptTableError, FencedError, InvalidInputError, RobustWriteError
from sparkrobust.handles.bulk import bulk
from sparkrobust.handles.create import create
from sparkrobust.handles.merge import merge
from sparkrobust.handles.plan import SLOT, Attempt, SlotResult, WritePlan
from sparkrobust.handles.rows import newest_of_each_key
from sparkrobust.handles.spool import Spool, in_chunks
from sparkrobust.storage.contract import NotFoundError, PermissionDeniedError, StorageFullError

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
    _look_at_gate(plan)
    if not plan.slots:
        yield _told(attempt.task, lambda: bulk(plan, attempt, batches))
        return
    tables = in_chunks(batches, _CHUNK_ROWS)
    first = next(tables, None)
    if first is None:
        return
    tables = _led_by(first, tables)
    one = first[SLOT][0].as_py()
    if plan.tasks.count(plan.tasks[one]) == 1:
        yield _told(one, lambda: _slot(plan, attempt, plan.slots[one], tables))
        return
    with Spool() as spool:
        for table in tables:
            spool.add(table)
        whole = spool.table()
        assert whole is not None

        def one_slot(index: int) -> SlotResult:
            rows = whole.filter(pc.equal(whole[SLOT], index))
            return _told(index, lambda: _slot(plan, attempt, plan.slots[index], [rows]))

        # They are small, and much of each is waiting for the store.
        with ThreadPoolExecutor(_SLOT_THREADS) as pool:
            yield from pool.map(one_slot, sorted(pc.unique(whole[SLOT]).to_pylist()))


def _look_at_gate(plan: WritePlan) -> None:
    """The gate is open if it is there with our nonce; anything else means closed."""
    try:
        nonce = plan.storage.read(plan.control.gate).decode(errors="replace")
    except NotFoundError:
        nonce = ""
    if nonce != plan.control.nonce:
        raise FencedError(
            f"the write {plan.control.instant} is over; this task came late and wrote nothing",
            instant=plan.control.instant,
            path=plan.storage.url,
        )


def _slot(plan: WritePlan, attempt: Attempt, slot: Slot, tables: Iterable[pa.Table]) -> SlotResult:
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


def _led_by(first: pa.Table, others: Iterator[pa.Table]) -> Iterator[pa.Table]:
    yield first
    yield from others


def _told(slot: int, work: Callable[[], SlotResult]) -> SlotResult:
    try:
        return work()
    except _FINAL as error:
        return SlotResult(slot=slot, problem=(type(error).__name__, str(error), error.path))
