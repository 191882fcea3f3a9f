"""Rows that wait: in memory as long as they are few, on the executor's own disk when they are many."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from types import TracebackType

import pyarrow as pa

from sparkrobust.handles.rows import bytes_of

IN_MEMORY = 192 << 20


class Spool:
    """Takes tables one after the other, gives them back as one table.

    What goes beyond ``limit`` bytes is written to a temporary file and mapped into memory, where
    the operating system keeps of it what there is room for.
    """

    def __init__(self, limit: int = IN_MEMORY) -> None:
        self._limit = limit
        self._tables: list[pa.Table] = []
        self._bytes = 0
        self._file: str | None = None
        self._sink: pa.OSFile | None = None
        self._writer: pa.ipc.RecordBatchFileWriter | None = None

    def add(self, table: pa.Table) -> None:
        if not table.num_rows:
            return
        self._tables.append(table)
        self._bytes += bytes_of(table)
        if self._bytes > self._limit:
            self._spill()

    def _spill(self) -> None:
        if self._writer is None:
            handle, self._file = tempfile.mkstemp(prefix="sparkrobust-spool-")
            os.close(handle)
            self._sink = pa.OSFile(self._file, "wb")
            self._writer = pa.ipc.new_file(self._sink, self._tables[0].schema)
        # One batch a spill: what is read back later is in pieces of about the limit.
        for batch in pa.concat_tables(self._tables).combine_chunks().to_batches():
            self._writer.write_batch(batch)
        self._tables, self._bytes = [], 0

    def table(self) -> pa.Table | None:
        """Everything that was added; ``None`` if nothing was."""
        if self._writer is None:
            return pa.concat_tables(self._tables).combine_chunks() if self._tables else None
        if self._tables:
            self._spill()
        self._writer.close()
        assert self._sink is not None and self._file is not None
        self._sink.close()
        return pa.ipc.open_file(pa.memory_map(self._file)).read_all()

    def __enter__(self) -> Spool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            if self._sink is not None and not self._sink.closed:
                self._sink.close()
            os.unlink(self._file)
            self._file = None


def in_chunks(batches: Iterator[pa.RecordBatch], rows: int) -> Iterator[pa.Table]:
    """Batches put together into tables of at least ``rows`` rows, as far as there are so many."""
    waiting: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        waiting.append(batch)
        count += batch.num_rows
        if count >= rows:
            yield pa.Table.from_batches(waiting).combine_chunks()
            waiting, count = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting).combine_chunks()
