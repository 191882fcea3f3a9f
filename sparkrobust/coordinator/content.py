"""What a write's completed instant says."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sparkrobust.coordinator.table import HudiTable
from sparkrobust.core.instant import Action
from sparkrobust.core.markers import Terms
from sparkrobust.core.names import NONCE, ControlFolder
from sparkrobust.core.write_status import WriteStat
from sparkrobust.formats.commit_metadata import CommitMetadata, ReplaceCommitMetadata


def content_of(
    table: HudiTable, terms: Terms, folder: ControlFolder, stats: Collection[WriteStat]
) -> CommitMetadata:
    """The metadata of a write with these files."""
    in_partition: dict[str, list[WriteStat]] = {}
    for stat in sorted(stats, key=lambda s: s.path or ""):
        in_partition.setdefault(stat.partition_path or "", []).append(stat)
    by_partition = {partition: tuple(found) for partition, found in in_partition.items()}
    extra = {"schema": terms.schema, NONCE: folder.nonce, **terms.extra}
    if terms.action is Action.REPLACE_COMMIT:
        return ReplaceCommitMetadata(
            partition_to_write_stats=by_partition,
            extra_metadata=extra,
            operation_type=terms.operation,
            partition_to_replace_file_ids=_replaced(table) if terms.replaces_table else {},
        )
    return CommitMetadata(
        partition_to_write_stats=by_partition, extra_metadata=extra, operation_type=terms.operation
    )


def _replaced(table: HudiTable) -> Mapping[str, tuple[str, ...]]:
    """All file groups of the table, by partition."""
    found: dict[str, list[str]] = {}
    for base in table.base_files():
        found.setdefault(base.partition, []).append(base.file_id)
    return {partition: tuple(ids) for partition, ids in found.items()}
