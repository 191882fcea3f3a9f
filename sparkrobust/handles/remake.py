"""The statuses of a slot, made again from what was written: for a write plan that runs a second time.

Spark may run the write stage again after the write has ended, when something that was derived from
it is lost (RFC-79, case 2).  The completion markers are gone by then.  Nothing is written: the
commit tells which files the slot came to, and the files tell their rows and keys.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from sparkrobust.core.file_ids import prefix_of
from sparkrobust.core.instant import Action, State
from sparkrobust.core.markers import CompletionMarker, Fingerprint
from sparkrobust.core.names import COMMIT_TIME, NONCE, RECORD_KEY, TIMELINE, BaseFileName, parse_instant_file
from sparkrobust.core.view import BaseFile
from sparkrobust.core.write_status import WriteStat
from sparkrobust.core.written import StagedFile, WrittenFile
from sparkrobust.errors import CorruptTableError
from sparkrobust.formats.commit_metadata import CommitMetadata, ReplaceCommitMetadata
from sparkrobust.handles.base_file import opened
from sparkrobust.handles.plan import Attempt, WritePlan


def remade(plan: WritePlan, attempt: Attempt, slot: int) -> CompletionMarker | None:
    """What the slot came to, ``None`` if the write was not committed."""
    stats = _committed(plan)
    if stats is None:
        return None
    mine = [stat for stat in stats if _is_of(plan, slot, stat)]
    files = tuple(WrittenFile(stat=stat, staged=_published(plan, stat)) for stat in mine)
    written = sum(stat.num_inserts + stat.num_update_writes for stat in mine)
    return CompletionMarker(slot=slot, attempt=attempt.token, input=Fingerprint(rows=written), files=files)


def written_keys(plan: WritePlan, stat: WriteStat) -> Iterator[pa.Array]:
    """The record keys of the rows that this write put into a file, not of those that it carried over."""
    with opened(plan.storage, _base_file(stat)) as file:
        for batch in file.iter_batches(columns=[COMMIT_TIME, RECORD_KEY], use_threads=False):
            ours = pc.equal(batch.column(0).cast(pa.string()), plan.control.instant)
            yield batch.column(1).cast(pa.string()).filter(ours)


def _committed(plan: WritePlan) -> list[WriteStat] | None:
    instant, storage = plan.control.instant, plan.storage
    for name in storage.names(TIMELINE):
        found = parse_instant_file(name)
        if found is None or found.time != instant or found.state is not State.COMPLETED:
            continue
        path = f"{TIMELINE}/{name}"
        kind = ReplaceCommitMetadata if found.action is Action.REPLACE_COMMIT else CommitMetadata
        metadata = kind.from_bytes(storage.read(path), path=path)
        return (
            list(metadata.write_stats) if metadata.extra_metadata.get(NONCE) == plan.control.nonce else None
        )
    return None


def _is_of(plan: WritePlan, slot: int, stat: WriteStat) -> bool:
    if not plan.slots:
        return stat.file_id.startswith(f"{prefix_of(plan.seed, slot)}-")
    wanted = plan.slots[slot]
    if wanted.base is not None:
        return stat.file_id == wanted.prefix
    return stat.file_id.startswith(f"{wanted.prefix}-")


def _base_file(stat: WriteStat) -> BaseFile:
    name = BaseFileName.parse((stat.path or "").rpartition("/")[2])
    if name is None:
        raise CorruptTableError(f"the commit names {stat.path!r}, which is no base file", path=stat.path)
    return BaseFile(partition=stat.partition_path or "", name=name, size=stat.file_size_in_bytes)


def _published(plan: WritePlan, stat: WriteStat) -> StagedFile:
    """The file where it is now, its rows counted."""
    base = _base_file(stat)
    with opened(plan.storage, base) as file:
        if file.metadata.num_rows != stat.num_writes:
            raise CorruptTableError(
                f"{base.path} has {file.metadata.num_rows} rows, its commit says {stat.num_writes}",
                path=base.path,
            )
    return StagedFile(final_path=base.path, token=base.path, size=base.size)
