"""A table that is there, as a writer with the same options has it."""

from __future__ import annotations

from sparkrobust.coordinator import metadata_table
from sparkrobust.coordinator.coordination import coordination_of
from sparkrobust.coordinator.table import HudiTable
from sparkrobust.options import Given, WriteOptions, parse
from sparkrobust.storage.resolve import storage_for
from sparkrobust.world import Clock, Ids


def opened(path: str, given: Given) -> tuple[HudiTable, WriteOptions]:
    """The table, with the lock and the heartbeats of a write with these options, and what they say."""
    options = parse(given)
    storage = storage_for(path, options.storage)
    clock, ids = Clock(), Ids()
    coordination = coordination_of(options, storage, clock, ids)
    return HudiTable.open(storage, clock, ids, coordination=coordination), options


def refuse_changing(table: HudiTable, options: WriteOptions) -> None:
    """``UnsupportedTableError`` for a table that a write with these options would not change either."""
    table.reload_config()
    metadata_table.refuse_or_allow(table, may_drop=options.drop_metadata_table)
    table.config.refuse_writing(table.storage.url)
