"""Rows that are read once and kept in the write's control folder, since a second reading may give others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from sparkrobust.core.names import ControlFolder
from sparkrobust.handles.packing import IPC_OPTIONS
from sparkrobust.storage.contract import AlreadyExistsError, Storage
from sparkrobust.world import Ids


def pin(
    storage: Storage, control: ControlFolder, part: int, batches: Iterable[pa.RecordBatch], ids: Ids
) -> None:
    """Keep the rows of a partition; of several attempts the first one's stay."""
    name = f"rows-{part}-{ids.nonce()}"
    with storage.stage(control.staging, name, control.rows(part)) as sink:
        writer: pa.ipc.RecordBatchStreamWriter | None = None
        with pa.PythonFile(sink, "w") as file:
            for batch in batches:
                writer = writer or pa.ipc.new_stream(file, batch.schema, options=IPC_OPTIONS)
                writer.write_batch(batch)
            if writer is not None:
                writer.close()
            staged = sink.finish()
    try:
        storage.publish(staged)
    except AlreadyExistsError:
        storage.discard(staged.token)


def pinned(storage: Storage, control: ControlFolder, part: int) -> Iterator[pa.RecordBatch]:
    """The rows that were kept."""
    if not (found := storage.stat(control.rows(part))) or not found.size:
        return
    with storage.open(control.rows(part)) as source, pa.ipc.open_stream(source) as reader:
        yield from reader
