"""A new table in place of an old one: its properties change right before its commit.

Until the commit stands, the old properties lie in the write's control folder, and a rollback of the
write brings them back: a failed overwrite leaves the table that was there.
"""

from __future__ import annotations

from collections.abc import Mapping

from sparkrobust.coordinator.properties import update_properties
from sparkrobust.coordinator.table import HudiTable
from sparkrobust.core.names import PROPERTIES, ControlFolder
from sparkrobust.formats import properties
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
    path = _kept(control)
    try:
        before = properties.parse(table.storage.read(path), path=path)
    except NotFoundError:
        return
    update_properties(table.storage, lambda _: before, table.clock)
    table.storage.delete(path)
    table.reload_config()
