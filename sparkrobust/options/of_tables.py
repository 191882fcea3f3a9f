"""Options that say what a table is: for a new one, or held against the one that is there."""

from __future__ import annotations

from sparkrobust.options import values as v
from sparkrobust.options.option import Kind, Option

_W = "hoodie.datasource.write."

TABLE_OPTIONS = (
    Option(
        key="hoodie.table.name",
        field="table_name",
        kind=Kind.TEXT,
        aliases=(f"{_W}table.name",),
        doc="name of the table; required to make a new one",
    ),
    Option(
        key="hoodie.database.name",
        field="database_name",
        kind=Kind.TEXT,
        doc="database of the table; none by default",
    ),
    Option(
        key=f"{_W}recordkey.field",
        field="record_key_fields",
        kind=Kind.FIELDS,
        aliases=("hoodie.table.recordkey.fields",),
        doc="the fields that identify a row",
    ),
    Option(
        key=f"{_W}partitionpath.field",
        field="partition_fields",
        kind=Kind.FIELDS,
        aliases=("hoodie.table.partition.fields",),
        doc="the fields that a table is partitioned by; a new table without them is not partitioned",
    ),
    Option(
        key=f"{_W}precombine.field",
        field="ordering_fields",
        kind=Kind.FIELDS,
        aliases=(
            "hoodie.table.ordering.fields",
            "hoodie.table.precombine.field",
            "hoodie.payload.ordering.field",
        ),
        doc="the fields by which the larger of two rows of a key wins",
    ),
    Option(
        key=f"{_W}keygenerator.type",
        field="key_generator",
        kind=Kind.WORD,
        words=v.KeyGenerator,
        aliases=("hoodie.table.keygenerator.type",),
        not_yet=(
            "TIMESTAMP",
            "CUSTOM",
            "GLOBAL_DELETE",
            "AUTO_RECORD",
            "USER_PROVIDED",
            "TIMESTAMP_AVRO",
            "CUSTOM_AVRO",
            "GLOBAL_DELETE_AVRO",
            "AUTO_RECORD_AVRO",
            "SPARK_SQL",
            "SPARK_SQL_UUID",
        ),
        doc="how keys and paths are made; by default inferred from the numbers of fields",
    ),
    Option(
        key=f"{_W}keygenerator.class",
        field="key_generator",
        kind=Kind.CLASS,
        words=v.KeyGenerator,
        aliases=("hoodie.table.keygenerator.class",),
        doc="the same by Hudi's class name: SimpleKeyGenerator, ComplexKeyGenerator or "
        "NonpartitionedKeyGenerator, with or without package",
    ),
    Option(
        key=f"{_W}hive_style_partitioning",
        field="hive_style_partitioning",
        kind=Kind.BOOL,
        doc="partition folders are called `field=value`; a new table: false",
    ),
    Option(
        key=f"{_W}partitionpath.urlencode",
        field="url_encode_partitions",
        kind=Kind.BOOL,
        doc="partition values are percent-encoded in folder names; a new table: false",
    ),
    Option(
        key=f"{_W}table.type",
        field="table_type",
        kind=Kind.WORD,
        words=v.TableType,
        aliases=("hoodie.table.type", f"{_W}storage.type"),
        not_yet=("MERGE_ON_READ",),
        doc="type of the table",
    ),
    Option(
        key="hoodie.write.record.merge.mode",
        field="merge_mode",
        kind=Kind.WORD,
        words=v.MergeMode,
        aliases=("hoodie.record.merge.mode",),
        not_yet=("CUSTOM",),
        doc="which of two rows of a key stays; a new table: by event time if it has ordering fields, "
        "else by commit time",
    ),
    Option(
        key=f"{_W}payload.class",
        field="payload_class",
        kind=Kind.CLASS,
        aliases=("hoodie.compaction.payload.class", "hoodie.table.legacy.payload.class"),
        doc="older way to say the merge mode: OverwriteWithLatestAvroPayload or DefaultHoodieRecordPayload",
    ),
    Option(
        key="hoodie.table.base.file.format",
        field="base_file_format",
        kind=Kind.WORD,
        words=v.FileFormat,
        not_yet=("ORC", "HFILE", "LANCE"),
        aliases=("hoodie.table.ro.file.format",),
        doc="format of data files",
    ),
    Option(
        key="hoodie.table.timeline.timezone",
        field="timeline_zone",
        kind=Kind.WORD,
        words=v.TimelineZone,
        doc="zone of the instants of a new table: UTC (a departure: Hudi's default is LOCAL)",
    ),
)
