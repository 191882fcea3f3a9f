"""The merge handle: a file group's next version, made of its last one and the incoming rows.

The base file streams through, a batch at a time; the incoming rows wait in a spool.  Looking up,
comparing and replacing are done by Arrow on whole columns: no row is ever a Python object.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from sparkrobust.core.file_ids import Slot
from sparkrobust.core.names import RECORD_KEY, MarkerType
from sparkrobust.core.written import WrittenFile
from sparkrobust.handles.base_file import rows_of
from sparkrobust.handles.files import DataFile
from sparkrobust.handles.plan import KEY, Attempt, WritePlan
from sparkrobust.handles.rows import (
    check_keys,
    deleted,
    members,
    newest_of_each_key,
    not_older,
    ordering_values,
    replace,
    single,
    stamped,
)
from sparkrobust.handles.spool import Spool


class _Incoming:
    """The rows of a slot that came in, one a key where the rules say so."""

    def __init__(self, plan: WritePlan, slot: Slot, table: pa.Table) -> None:
        self.rules = plan.rules
        keep = newest_of_each_key(table, self.rules.ordering) if self.rules.combine else None
        if keep is not None:
            table = table.filter(keep)
        gone = deleted(table, self.rules)
        self.deleted = single(gone) if gone is not None and pc.any(gone).as_py() else None
        self.keys = single(table[KEY])
        # Rows that can only delete have no data to stamp.
        self.chunks = [] if self.rules.delete else self._stamp(plan, slot, table)
        self._matched: list[pa.Array] = []

    @staticmethod
    def _stamp(plan: WritePlan, slot: Slot, table: pa.Table) -> list[pa.Table]:
        chunks, first = [], 0
        for batch in table.to_batches():
            chunk = pa.Table.from_batches([batch])
            chunks.append(stamped(chunk, plan.schema, plan.control.instant, slot.index, first))
            first += batch.num_rows
        return chunks

    def found(self, indices: pa.Array) -> None:
        self._matched.append(pc.unique(indices))

    def rows(self, indices: pa.Array) -> pa.Table:
        """The rows at these positions, in this order."""
        if len(self.chunks) == 1:
            return self.chunks[0].take(indices)
        pieces, places, low = [], [], 0
        for chunk in self.chunks:
            high = low + chunk.num_rows
            here = pc.and_(pc.greater_equal(indices, low), pc.less(indices, high))
            pieces.append(chunk.take(pc.subtract(indices.filter(here), low)))
            places.append(pc.indices_nonzero(here))
            low = high
        return pa.concat_tables(pieces).take(pc.sort_indices(pa.concat_arrays(places)))

    def unmatched(self) -> Iterable[pa.Table]:
        """The rows whose key the base file does not hold, and that are no deletes."""
        if self.rules.delete:
            return
        matched = pa.concat_arrays(
            [one.cast(pa.int64()) for one in self._matched] or [pa.array([], pa.int64())]
        )
        new = pc.invert(members(len(self.keys), matched))
        if self.deleted is not None:
            new = pc.and_(new, pc.invert(self.deleted))
        low = 0
        for chunk in self.chunks:
            yield chunk.filter(new.slice(low, chunk.num_rows))
            low += chunk.num_rows


class _Counts:
    """What the merge did, for the statistics."""

    def __init__(self) -> None:
        self.updates = self.deletes = self.inserts = 0


def merge(plan: WritePlan, attempt: Attempt, slot: Slot, tables: Iterable[pa.Table]) -> list[WrittenFile]:
    """Write the next version of the slot's file group."""
    assert slot.base is not None
    with Spool() as spool:
        for table in tables:
            check_keys(table)
            spool.add(table)
        waiting = spool.table()
        assert waiting is not None, "a slot without rows has no task"
        incoming = _Incoming(plan, slot, waiting)
        file = DataFile(
            plan, attempt, file_id=slot.file_id(0), partition=slot.partition, kind=MarkerType.MERGE
        )
        try:
            counts = _Counts()
            for stored in rows_of(plan.storage, slot.base, plan.schema):
                file.write(_merged(stored, incoming, counts) if plan.rules.match else stored)
            for new in incoming.unmatched():
                file.write(new, new=True)
                counts.inserts += new.num_rows
            written = file.finish(
                inserts=counts.inserts, updates=counts.updates, deletes=counts.deletes, slot=slot
            )
        except BaseException:
            file.discard()
            raise
        return [written]


def _merged(stored: pa.Table, incoming: _Incoming, counts: _Counts) -> pa.Table:
    """A batch of the base file with what came in for its keys."""
    places = single(pc.index_in(stored[RECORD_KEY], value_set=incoming.keys))
    if places.null_count == len(places):
        return stored
    hit = places.is_valid()
    wanted = places.drop_null()
    incoming.found(wanted)
    ordering = incoming.rules.ordering
    if ordering and not incoming.rules.delete:
        new = ordering_values(incoming.rows(wanted), ordering)
        wins = not_older(new, ordering_values(stored, ordering).filter(hit), ordering)
        hit, wanted = replace(hit, hit, wins), wanted.filter(wins)
    gone = incoming.deleted.take(wanted) if incoming.deleted is not None else None
    if not incoming.rules.delete:
        stored = _replaced(stored, hit, incoming.rows(wanted))
    removed = 0
    if gone is not None:
        stored = stored.filter(replace(pa.repeat(pa.scalar(True), len(hit)), hit, pc.invert(gone)))
        removed = pc.sum(gone).as_py() or 0
    counts.deletes += removed
    counts.updates += len(wanted) - removed
    return stored


def _replaced(stored: pa.Table, hit: pa.Array, rows: pa.Table) -> pa.Table:
    columns: Sequence[pa.Array] = [
        # The key that was found is the key that is there.
        old if name == RECORD_KEY else replace(single(old), hit, single(new))
        for name, old, new in zip(stored.column_names, stored.columns, rows.columns, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=stored.schema)
