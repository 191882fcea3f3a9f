"""Making a table, and holding a writer's options against the one that is there."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from sparkrobust.coordinator.coordination import Coordination
from sparkrobust.coordinator.locking import locked
from sparkrobust.coordinator.properties import create_properties
from sparkrobust.coordinator.table import HudiTable
from sparkrobust.core.names import (
    HEARTBEATS,
    HOODIE,
    LOCK_FILE,
    LOCKS,
    PROPERTIES,
    PROPERTIES_BACKUP,
    ROBUST,
    TEMP,
    TIMELINE,
)
from sparkrobust.core.table_config import KeyGenerator, MergeMode, TableConfig
from sparkrobust.errors import CommitOutcome, InvalidOptionError, RobustWriteError, TableNotFoundError
from sparkrobust.options import TimelineZone, WriteOptions
from sparkrobust.storage.contract import Storage
from sparkrobust.storage.resolve import PROBE
from sparkrobust.world import Clock, Ids

_DATABASE = "hoodie.database.name"
_SCRAPS = (f"{ROBUST}/", f"{TEMP}/", f"{HEARTBEATS}/", f"{LOCKS}/", f"{HOODIE}/{PROBE}")
"""What failed writes leave where there never was a table."""


def new_properties(options: WriteOptions) -> dict[str, str]:
    """The properties of a new table, as Hudi 1.1.1 writes them for a DataFrame."""
    problems = []
    if not options.table_name:
        problems.append("hoodie.table.name must be set to make a new table")
    if not options.record_key_fields:
        problems.append("hoodie.datasource.write.recordkey.field must be set to make a new table")
    if problems:
        raise InvalidOptionError("; ".join(problems))
    assert options.table_name and options.record_key_fields
    partitions = options.partition_fields or ()
    generator = _key_generator(options, len(options.record_key_fields), len(partitions))
    ordering = options.ordering_fields or ()
    mode = MergeMode.EVENT_TIME if ordering else MergeMode.COMMIT_TIME
    if options.merge_mode is not None and ordering:
        mode = MergeMode(options.merge_mode.value)
    values = {
        "hoodie.table.name": options.table_name,
        "hoodie.table.type": "COPY_ON_WRITE",
        "hoodie.table.version": "9",
        "hoodie.table.initial.version": "9",
        "hoodie.timeline.layout.version": "2",
        "hoodie.timeline.path": "timeline",
        "hoodie.timeline.history.path": "history",
        "hoodie.archivelog.folder": "history",
        "hoodie.table.format": "native",
        "hoodie.table.base.file.format": "PARQUET",
        "hoodie.table.multiple.base.file.formats.enable": "false",
        "hoodie.table.keygenerator.type": generator.value,
        "hoodie.table.recordkey.fields": ",".join(options.record_key_fields),
        "hoodie.table.partition.fields": ",".join(partitions),
        "hoodie.datasource.write.hive_style_partitioning": _word(options.hive_style_partitioning),
        "hoodie.datasource.write.partitionpath.urlencode": _word(options.url_encode_partitions),
        "hoodie.datasource.write.drop.partition.columns": "false",
        "hoodie.partition.metafile.use.base.format": "false",
        "hoodie.record.merge.mode": mode.value,
        "hoodie.populate.meta.fields": "true",
        "hoodie.table.cdc.enabled": "false",
        "hoodie.table.timeline.timezone": (options.timeline_zone or TimelineZone.UTC).value,
    }
    if ordering:
        values["hoodie.table.ordering.fields"] = ",".join(ordering)
    if options.database_name:
        values[_DATABASE] = options.database_name
    if options.payload_class:
        values["hoodie.table.legacy.payload.class"] = options.payload_class
    return values


def _key_generator(options: WriteOptions, keys: int, partitions: int) -> KeyGenerator:
    inferred = KeyGenerator.for_fields(keys, partitions)
    if options.key_generator is None:
        return inferred
    asked = KeyGenerator(options.key_generator.value)
    if asked is KeyGenerator.SIMPLE and inferred is not KeyGenerator.SIMPLE:
        raise InvalidOptionError(
            f"the simple key generator takes one key and one partition field, not {keys} and {partitions}",
            hint="leave hoodie.datasource.write.keygenerator.class out: it is inferred",
        )
    if asked is KeyGenerator.NON_PARTITION and partitions:
        raise InvalidOptionError("the non-partitioned key generator takes no partition fields")
    return asked


def _word(flag: bool | None) -> str:
    return "true" if flag else "false"


def overwriting_properties(table: TableConfig, options: WriteOptions) -> dict[str, str]:
    """The properties of a table that takes the place of another one.

    They are what the options say, as for a new table; the name and the key fields may be left out.
    The zone of the instants stays: the timeline goes on.
    """
    filled = replace(
        options,
        table_name=options.table_name or table.name,
        record_key_fields=options.record_key_fields or table.key_fields,
        timeline_zone=TimelineZone.UTC if table.utc else TimelineZone.LOCAL,
    )
    return new_properties(filled)


def make_table(
    storage: Storage,
    options: WriteOptions,
    clock: Clock,
    ids: Ids,
    coordination: Coordination | None = None,
) -> tuple[HudiTable, bool]:
    """Make a table, or open the one that another writer made meanwhile; whether it was made here."""
    wanted = new_properties(options)
    for folder in (HOODIE, TIMELINE, TEMP):
        storage.make_folder(folder)
    values = create_properties(storage, wanted, clock)
    if values is None:
        return HudiTable.open(storage, clock, ids, coordination=coordination), False
    table = HudiTable.of_properties(storage, values, clock, ids, coordination=coordination)
    try:
        table.reload()
    except RobustWriteError:
        forget_table(table)  # or the same call would find it the next time
        raise
    return table, True


def refuse_contradictions(config: TableConfig, options: WriteOptions) -> None:
    """Every option that says something else than the table's properties, in one error."""
    pairs: list[tuple[str, object, object]] = [
        ("hoodie.table.name", options.table_name, config.name),
        (_DATABASE, options.database_name, config.values.get(_DATABASE, "")),
        ("hoodie.datasource.write.recordkey.field", options.record_key_fields, config.key_fields),
        ("hoodie.datasource.write.partitionpath.field", options.partition_fields, config.partition_fields),
        ("hoodie.datasource.write.precombine.field", options.ordering_fields, config.ordering_fields),
        (
            "hoodie.datasource.write.hive_style_partitioning",
            options.hive_style_partitioning,
            config.hive_style,
        ),
        (
            "hoodie.datasource.write.partitionpath.urlencode",
            options.url_encode_partitions,
            config.url_encoded,
        ),
        (
            "hoodie.datasource.write.keygenerator.class",
            options.key_generator and options.key_generator.value,
            config.key_generator.removesuffix("_AVRO"),
        ),
        (
            "hoodie.write.record.merge.mode",
            options.merge_mode and options.merge_mode.value,
            config.merge_mode.value,
        ),
    ]
    wrong = [
        f"{key} is {_shown(given)}, the table has {_shown(has)}"
        for key, given, has in pairs
        if given is not None and given != has
    ]
    if wrong:
        raise InvalidOptionError(
            f"options contradict the table's properties: {'; '.join(wrong)}",
            hint="leave them out: the table knows them",
        )


def _shown(value: object) -> str:
    text = ",".join(value) if isinstance(value, tuple) else str(value)
    return repr(text)


def is_made(storage: Storage) -> bool:
    """Whether there is a table, or what may be one; not what is left of one that never came to be.

    Of that there are locks, heartbeats and what failed writes leave, and nothing on the timeline.
    """
    if any(info.path in (PROPERTIES, PROPERTIES_BACKUP) for info in storage.list(HOODIE)[0]):
        return True
    return any(info.path != LOCK_FILE and not info.path.startswith(_SCRAPS) for info in storage.walk(HOODIE))


def forget_table(table: HudiTable) -> None:
    """Take away a table that was made for a write that failed, if it never held a row.

    One that others may have found meanwhile, since its lock is shared, stays, and is empty.
    """
    if table.coordination.lock.shared:
        return
    with suppress(RobustWriteError), locked(table, "forgetting of the table"):
        table.reload()
        if not table.timeline.completed_writes and not table.timeline.pending:
            table.storage.delete_tree(HOODIE)


def refuse_if_forgotten(table: HudiTable) -> None:
    """``TableNotFoundError`` if the table is not there any more; to be asked under the lock."""
    if table.timeline.instants or is_made(table.storage):
        return
    raise TableNotFoundError(
        f"{table.storage.url} is no table any more: the first write, for which it was made, has failed",
        path=table.storage.url,
        outcome=CommitOutcome.RETRYABLE,
        hint="write again, which makes it anew",
    )
