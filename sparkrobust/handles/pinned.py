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
    name = control.staged_rows(part, ids.nonce())
    note = f"{control.path}/{name}" if storage.staging.needs_its_token else ""
    with storage.stage(control.staging, name, control.rows(part)) as sink:
        if note:
            # Like a begin marker: if nothing comes of the upload, who cleans up finds it by this.
            storage.put(note, sink.token.encode())
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
    if note:
        storage.delete(note)  # else who cleans up would ask for each of them


def pinned(storage: Storage, control: ControlFolder, part: int) -> Iterator[pa.RecordBatch]:
    """The rows that were kept."""
    if not (found := storage.stat(control.rows(part))) or not found.size:
        return
    with storage.open(control.rows(part)) as source, pa.ipc.open_stream(source) as reader:
        yield from reader
