"""Rows as bytes: how they wait between two jobs, and how they travel through the driver."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from sparkrobust.handles.rows import bytes_of

IPC_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")


def pack(table: pa.Table) -> bytes:
    """A table as the bytes of an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=IPC_OPTIONS) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def unpack(packed: bytes | pa.Buffer) -> pa.Table:
    """What was packed."""
    with pa.ipc.open_stream(packed) as reader:
        return reader.read_all()


def pieces(batches: Iterable[pa.RecordBatch], size: int) -> Iterator[pa.Table]:
    """The same rows in tables of about ``size`` bytes, none much larger unless a single row is."""
    waiting: list[pa.RecordBatch] = []
    held = 0
    for batch in batches:
        for part in _cut(batch, size):
            waiting.append(part)
            held += bytes_of(pa.Table.from_batches([part]))
            if held >= size:
                yield pa.Table.from_batches(waiting).combine_chunks()
                waiting, held = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting).combine_chunks()


def _cut(batch: pa.RecordBatch, size: int) -> Iterator[pa.RecordBatch]:
    whole = bytes_of(pa.Table.from_batches([batch]))
    rows = max(1, batch.num_rows * size // max(whole, 1)) if whole > 2 * size else batch.num_rows
    for low in range(0, batch.num_rows, rows):
        yield batch.slice(low, rows)
