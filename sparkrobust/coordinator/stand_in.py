"""A new table in place of an old one: its properties change right before its commit.

Until the commit stands, the old properties lie in the write's control folder, and a rollback of the
write brings them back: a failed overwrite leaves the table that was there.
"""

from __future__ import annotations

from collections.abc import Mapping

from sparkrobust.coordinator.partitions import uncover
from sparkrobust.coordinator.properties import update_properties
from sparkrobust.coordinator.table import HudiTable
from sparkrobust.core.instant import Instant
from sparkrobust.core.names import PARTITION_METADATA, PROPERTIES, ControlFolder, joined
from sparkrobust.core.table_config import TableConfig
from sparkrobust.formats import properties
from sparkrobust.formats.commit_metadata import ReplaceCommitMetadata
from sparkrobust.storage.contract import NotFoundError


def _kept(control: ControlFolder) -> str:
    return f"{control.path}/properties.before"


def replace_properties(table: HudiTable, control: ControlFolder, values: Mapping[str, str]) -> None:
    """Give the table other properties, and keep the present ones for a rollback."""
    table.storage.put_if_absent(_kept(control), table.storage.read(PROPERTIES))
    update_properties(table.storage, lambda _: dict(values), table.clock)
    table.reload_config()


def restore_properties(table: HudiTable, control: ControlFolder) -> None:
    """Bring back what :func:`replace_properties` kept, if it was called."""
    before = _before(table, control)
    if before is not None:
        update_properties(table.storage, lambda _: dict(before), table.clock)
        table.storage.delete(_kept(control))
        table.reload_config()


def _before(table: HudiTable, control: ControlFolder) -> Mapping[str, str] | None:
    path = _kept(control)
    try:
        return properties.parse(table.storage.read(path), path=path)
    except NotFoundError:
        return None


def retire_old_partitions(table: HudiTable, control: ControlFolder, completed: Instant) -> None:
    """After the commit: folders of the old table are no partitions, where its paths meant something else.

    Hudi reads the path of every folder that has a partition file by the table's present fields, and
    fails on one that does not fit; and it looks for nothing below one.
    """
    before = _before(table, control)
    if before is None:
        return
    metadata = table.commit(completed)
    assert isinstance(metadata, ReplaceCommitMetadata)
    written = {stat.partition_path or "" for stat in metadata.write_stats}
    if _spelling(TableConfig.of(before, path=_kept(control))) != _spelling(table.config):
        for partition in metadata.partition_to_replace_file_ids.keys() - written:
            table.storage.delete(joined(partition, PARTITION_METADATA))
    uncover(table, written)


def _spelling(config: TableConfig) -> tuple[object, ...]:
    """How the table spells its partitions' paths."""
    return config.partition_fields, config.hive_style, config.url_encoded
