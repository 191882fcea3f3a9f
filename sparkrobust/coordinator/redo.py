"""Which slots a write does again since others were faster: a look without the lock, while its gate is open.

What comes after the look, and what can't be mended so, is found when the write is to be committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from sparkrobust.coordinator.conflicts import Plan, completed_since, conflicts_of, group_of
from sparkrobust.coordinator.planned import have_same_columns
from sparkrobust.coordinator.table import HudiTable
from sparkrobust.core.conflicts import FileGroup
from sparkrobust.core.file_ids import Slot
from sparkrobust.core.markers import CompletionMarker
from sparkrobust.core.names import BaseFileName, instant_file
from sparkrobust.core.redo import Reads, Since, in_place, may_redo


def slots_to_redo(
    table: HudiTable,
    plan: Plan,
    reads: Reads,
    schema: str,
    slots: Sequence[Slot],
    superseded: Mapping[int, int],
) -> dict[int, Slot]:
    """By number, for each slot that is to be done again the one that is done in its place.

    Parameters
    ----------
    reads, schema
        What the write goes by, and the columns that it writes.
    slots, superseded
        Those of the write so far, and which of them others were done in place of.
    """
    again = [(slot, slot.base) for slot in slots if slot.index in superseded.values()]
    made_from = {(slot.partition, slot.prefix): base.name.instant for slot, base in again if base}
    plan = replace(plan, made_from=made_from)
    table.reload()
    conflicts = conflicts_of(table, plan)
    if not conflicts or not may_redo(plan.folder.instant, reads, conflicts, _since(table, plan, schema)):
        return {}
    partitions = {partition for conflict in conflicts for partition, _ in conflict.groups}
    newest = {(base.partition, base.file_id): base for base in table.base_files(sorted(partitions))}
    return in_place(slots, superseded.keys(), conflicts, newest)


def _since(table: HudiTable, plan: Plan, schema: str) -> Iterator[Since]:
    mine = schema, plan.folder.gate
    for other in completed_since(table, plan):
        metadata = table.commit(other)
        theirs = (metadata.schema, instant_file(other)) if metadata.schema else None
        same = have_same_columns(theirs, mine)
        yield Since(operation=metadata.operation_type, same_schema=same)


def made_from(markers: Iterable[CompletionMarker], superseded: Mapping[int, int]) -> dict[FileGroup, str]:
    """Of the file groups that were done again, the instants of the files that they were made from."""
    again = set(superseded.values())
    files = (file.stat for marker in markers if marker.slot in again for file in marker.files)
    found = ((stat, BaseFileName.parse(stat.prev_base_file or "")) for stat in files)
    return {group_of(stat): base.instant for stat, base in found if base}
