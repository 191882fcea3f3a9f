"""Whether what a write was planned from is still what the table is."""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Set as AbstractSet

from sparkrobust.coordinator.table import HudiTable
from sparkrobust.core.instant import Instant, InstantTime
from sparkrobust.core.markers import Terms
from sparkrobust.core.names import WRITE_ID, ControlFolder
from sparkrobust.core.write_status import WriteStat
from sparkrobust.errors import ConflictError
from sparkrobust.formats.commit_metadata import ReplaceCommitMetadata


def refuse_conflicts(
    table: HudiTable,
    folder: ControlFolder,
    terms: Terms,
    stats: Collection[WriteStat],
    *,
    seen: AbstractSet[InstantTime],
) -> None:
    """``ConflictError`` if another write has changed what this one was planned from.

    Parameters
    ----------
    seen
        The completed writes that it was planned with.
    """
    mine = {(stat.partition_path or "", stat.file_id) for stat in stats if stat.prev_base_file}
    for other in table.timeline.completed_writes:
        if other.time in seen and (other.completion or other.time) < folder.instant:
            continue
        metadata = table.commit(other)
        theirs = {(stat.partition_path or "", stat.file_id) for stat in metadata.write_stats}
        if isinstance(metadata, ReplaceCommitMetadata):
            replaced = metadata.partition_to_replace_file_ids.items()
            theirs |= {(partition, file_id) for partition, ids in replaced for file_id in ids}
        if mine & theirs or terms.replaces_table:
            raise ConflictError(
                f"{other} was completed while this write ran, and changed "
                f"{len(mine & theirs) or 'the'} file groups that it was made from",
                instant=folder.instant,
                path=table.storage.url,
                outcome="Conflicted",
                hint="write again: it starts from the table as it is now; run one writer at a time",
            )


def find_write(table: HudiTable, write_id: str) -> Instant | None:
    """The completed write of this id, if the active timeline has one."""
    for instant in reversed(table.timeline.completed_writes):
        if table.commit(instant).extra_metadata.get(WRITE_ID) == write_id:
            return instant
    return None
