"""A new table in place of an old one: its properties change with its commit.

They change after the commit is decided, and before its file is there: whoever finishes the commit
changes them, and nobody does for a write that failed.  They change only from what they were when
it was decided, so that a driver that slept changes nothing any more.
"""

from __future__ import annotations

from collections.abc import Mapping

from sparkrobust.coordinator.partitions import uncover
from sparkrobust.coordinator.properties import CHECKSUM, Values, update_properties
from sparkrobust.coordinator.table import HudiTable
from sparkrobust.core.decision import NewProperties
from sparkrobust.core.names import PARTITION_METADATA, PROPERTIES, joined
from sparkrobust.core.table_config import TableConfig


def replace_properties(table: HudiTable, properties: NewProperties) -> None:
    """Give the table its new properties, if it still has the ones from before."""
    _change(table, properties.before, properties.after)


def restore_properties(table: HudiTable, properties: NewProperties) -> None:
    """Give the table its old properties back, if it has the new ones."""
    _change(table, properties.after, properties.before)


def _change(table: HudiTable, expected: Mapping[str, str], wanted: Mapping[str, str]) -> None:
    def change(now: Values) -> Values:
        return dict(wanted) if _without_checksum(now) == _without_checksum(expected) else now

    update_properties(table.storage, change, table.clock)
    table.reload_config()


def _without_checksum(values: Mapping[str, str]) -> Values:
    return {key: value for key, value in values.items() if key != CHECKSUM}


def retire_old_partitions(
    table: HudiTable, before: Mapping[str, str], replaced: set[str], written: set[str]
) -> None:
    """After the commit: folders of the old table are no partitions, where its paths meant something else.

    Hudi reads the path of every folder that has a partition file by the table's present fields, and
    fails on one that does not fit; and it looks for nothing below one.

    Parameters
    ----------
    before
        The properties of the old table.
    replaced, written
        Its partitions, and those of the new one.
    """
    old = TableConfig.of(dict(before), path=PROPERTIES)
    if _spelling(old) != _spelling(table.config):
        for partition in replaced - written:
            table.storage.delete(joined(partition, PARTITION_METADATA))
    uncover(table, written)


def _spelling(config: TableConfig) -> tuple[object, ...]:
    """How the table spells its partitions' paths."""
    return config.partition_fields, config.hive_style, config.url_encoded
