"""Hudi's metadata table, as long as we don't keep it: refused, or dropped by Hudi's own steps.

A reader that finds a metadata table lists the table's files from it alone, so a commit that does
not also write it is invisible.  First the properties forget it, then its folder goes: the other
order would leave a table that Hudi can't write.
"""

from __future__ import annotations

from sparkrobust.coordinator.properties import Values, update_properties
from sparkrobust.coordinator.table import HudiTable
from sparkrobust.core.names import METADATA_TABLE
from sparkrobust.core.table_config import METADATA_PARTITIONS, METADATA_PARTITIONS_INFLIGHT
from sparkrobust.errors import UnsupportedTableError

DROP_OPTION = "hoodie.write.robust.drop.metadata.table"


def refuse_or_allow(table: HudiTable, *, may_drop: bool) -> None:
    """Refuse to write a table with a metadata table, unless it may be dropped."""
    if table.config.metadata_partitions and not may_drop:
        raise UnsupportedTableError(
            f"{table.storage.url} has a metadata table ({', '.join(table.config.metadata_partitions)}), "
            "which this version does not keep: a write would be invisible to readers that use it",
            path=table.storage.url,
            hint=f"set {DROP_OPTION}=true to drop it, and hoodie.metadata.enable=false on Hudi's writers",
        )


def refuse_or_drop(table: HudiTable, *, may_drop: bool) -> None:
    """Under the table's lock: drop the metadata table, if there is one, or what is left of one."""
    refuse_or_allow(table, may_drop=may_drop)
    if may_drop:
        _drop(table)


def _drop(table: HudiTable) -> None:
    def forget(values: Values) -> Values:
        return {**values, METADATA_PARTITIONS: "", METADATA_PARTITIONS_INFLIGHT: ""}

    if table.config.metadata_partitions:
        update_properties(table.storage, forget, table.clock)
        table.reload_config()
    # Also where the properties had named none: who dropped it may have come no further than to say so.
    # It is none that Hudi is about to make, as it does that under the lock.
    table.storage.delete_tree(METADATA_TABLE)
