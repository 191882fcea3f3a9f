"""The statuses of a slot, made again from the files that were written: for a write plan that runs again.

Spark may run the write stage once more after the write has ended, when something that was derived
from it is lost (RFC-79, case 2).  The completion markers are gone by then.  Nothing is written: the
slot's files are found by the ids that the driver gave them, and tell their rows and record keys.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from sparkrobust.core.file_ids import Slot, prefix_of
from sparkrobust.core.instant import State
from sparkrobust.core.markers import CompletionMarker, Fingerprint
from sparkrobust.core.names import (
    COMMIT_TIME,
    HOODIE,
    RECORD_KEY,
    TIMELINE,
    BaseFileName,
    joined,
    parse_instant_file,
)
from sparkrobust.core.view import BaseFile
from sparkrobust.core.write_status import NEW_FILE_GROUP, WriteStat
from sparkrobust.core.written import StagedFile, WrittenFile
from sparkrobust.handles.base_file import matching_keys, opened
from sparkrobust.handles.plan import Attempt, WritePlan


def remade(plan: WritePlan, attempt: Attempt, slot: int) -> CompletionMarker | None:
    """What the slot came to, ``None`` if the write was not committed."""
    if not _is_committed(plan):
        return None
    wanted = plan.slots[slot] if plan.slots else None
    files = tuple(_written(plan, base, wanted) for base in sorted(_files_of(plan, slot), key=_sequence))
    rows = sum(file.stat.num_inserts + file.stat.num_update_writes for file in files)
    return CompletionMarker(slot=slot, attempt=attempt.token, input=Fingerprint(rows=rows), files=files)


def written_keys(plan: WritePlan, base: BaseFile) -> Iterator[pa.Array]:
    """The record keys of the rows that this write put into a file, not of those that it carried over."""
    with opened(plan.storage, base) as file:
        for batch in file.iter_batches(columns=[COMMIT_TIME, RECORD_KEY], use_threads=False):
            ours = pc.equal(batch.column(0).cast(pa.string()), plan.control.instant)
            yield batch.column(1).cast(pa.string()).filter(ours)


def _is_committed(plan: WritePlan) -> bool:
    found = (parse_instant_file(name) for name in plan.storage.names(TIMELINE))
    return any(i is not None and i.time == plan.control.instant and i.state is State.COMPLETED for i in found)


def _files_of(plan: WritePlan, slot: int) -> Iterator[BaseFile]:
    """The files of this write that have the slot's ids; nobody else has these ids at this instant."""
    if plan.slots:
        wanted = plan.slots[slot]
        found = _named(plan, wanted.partition, wanted.prefix if wanted.base else f"{wanted.prefix}-")
        yield from (base for base in found if wanted.base is None or base.file_id == wanted.prefix)
        return
    # Which partitions a task of a bulk insert wrote to, only its rows knew.
    folders = [""]
    while folders:
        folder = folders.pop()
        yield from _named(plan, folder, f"{prefix_of(plan.seed, slot)}-")
        folders += [path for path in plan.storage.list(folder)[1] if path != HOODIE]


def _named(plan: WritePlan, partition: str, prefix: str) -> Iterator[BaseFile]:
    for info in plan.storage.list(partition)[0]:
        name = BaseFileName.parse(info.path.rpartition("/")[2])
        if name is not None and name.instant == plan.control.instant and name.file_id.startswith(prefix):
            yield BaseFile(partition=partition, name=name, size=info.size)


def _sequence(base: BaseFile) -> int:
    return int(base.file_id.rpartition("-")[2]) if base.file_id[-1].isdigit() else 0


def _written(plan: WritePlan, base: BaseFile, slot: Slot | None) -> WrittenFile:
    with opened(plan.storage, base) as file:
        rows = file.metadata.num_rows
    keys = pa.chunked_array(list(written_keys(plan, base)), pa.string())
    old = slot.base if slot else None
    updates = deletes = 0
    if old is not None:
        updates, deletes = _changes(plan, old, keys, carried=rows - len(keys))
    stat = WriteStat(
        file_id=base.file_id,
        path=joined(base.partition, str(base.name)),
        partition_path=base.partition,
        prev_commit=old.name.instant if old else NEW_FILE_GROUP,
        prev_base_file=str(old.name) if old else None,
        num_writes=rows,
        num_inserts=len(keys) - updates,
        num_update_writes=updates,
        num_deletes=deletes,
        total_write_bytes=base.size,
        file_size_in_bytes=base.size,
    )
    staged = StagedFile(final_path=base.path, token=base.path, size=base.size)
    return WrittenFile(stat=stat, staged=staged)


def _changes(plan: WritePlan, old: BaseFile, keys: pa.ChunkedArray, *, carried: int) -> tuple[int, int]:
    """How many of the keys the last version held, and how many rows of it are no more."""
    if plan.storage.stat(old.path) is None:
        return len(keys), 0  # it was cleaned; a key of an existing group is most likely an update
    with opened(plan.storage, old) as file:
        before = file.metadata.num_rows
    updates = len(matching_keys(plan.storage, old, pc.unique(keys)))
    return updates, before - carried - updates
