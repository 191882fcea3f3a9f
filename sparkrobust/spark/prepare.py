"""Step 1 of a write: the user's rows, with their record keys and partition paths, in the table's schema."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as t

from sparkrobust.core.names import META_COLUMNS
from sparkrobust.core.table_config import TableConfig
from sparkrobust.errors import SchemaConflictError
from sparkrobust.formats.reconcile import reconcile
from sparkrobust.formats.schema import TableSchema
from sparkrobust.handles.plan import FINGERPRINT, KEY, PATH, RESERVED_PREFIX, SEQUENCE, Derived
from sparkrobust.options import Operation, PinInput, SortMode, WriteOptions
from sparkrobust.spark.intent import Intent
from sparkrobust.spark.keys import derived, field_type, partition_path, quoted, record_key, refuse_nested_type
from sparkrobust.spark.schema import to_arrow
from sparkrobust.spark.tasks import BAD_ORDERING


@dataclass(frozen=True, kw_only=True)
class Incoming:
    """The rows of a write on their way."""

    frame: DataFrame
    """Key and partition path, what the operation needs besides, then the columns of the user."""
    schema: TableSchema
    """Of the table, once the write is done."""
    derived: Derived = field(default_factory=Derived)
    """What the first task adds to the rows; nothing that Spark has to sort by."""

    def whole_schema(self) -> t.StructType:
        """Of the rows with what is derived."""
        added = [
            t.StructField(name, t.StringType())
            for name, taken in ((KEY, self.derived.key), (PATH, self.derived.path))
            if taken is not None
        ]
        return t.StructType([*self.frame.schema.fields, *added])


def prepare(df: DataFrame, intent: Intent) -> Incoming:
    """Check the rows' schema against the table's, and add what the write needs to each row.

    Raises
    ------
    InvalidInputError
        A field is missing, or the schemas can't be reconciled; nothing was read yet.
    """
    config, options = intent.table.config, intent.options
    rows = df.drop(*META_COLUMNS)
    check_fields(rows, config, options)
    schema = _schema(rows, intent)
    readable = options.consistent_logical_timestamp
    key = record_key(config, rows.schema, readable_timestamps=readable).alias(KEY)
    path = partition_path(config, rows.schema, readable_timestamps=readable).alias(PATH)
    if options.operation is Operation.DELETE:
        bad = _bad_ordering(config, options).alias(BAD_ORDERING)
        return Incoming(frame=rows.select(key, path, bad, _fingerprint(key)), schema=schema)
    found = Derived()
    if not (intent.bulk and options.sort_mode is not SortMode.NONE):
        found = derived(config, rows.schema)
    counts = not intent.bulk or options.pin_input is PinInput.CHECK
    columns = [column for column, taken in ((key, found.key), (path, found.path)) if taken is None]
    if not intent.bulk:
        columns.append(_bad_ordering(config, options).alias(BAD_ORDERING))
        columns.append(F.monotonically_increasing_id().alias(SEQUENCE))
    if counts:
        columns.append(_fingerprint(key))
    columns += [F.col(quoted_name(name)) for name in rows.columns]
    return Incoming(frame=rows.select(*columns), schema=schema, derived=found)


def check_fields(df: DataFrame, config: TableConfig, options: WriteOptions) -> None:
    """The rows have every field that the table's settings name, and types that a table can hold."""
    rows = df.drop(*META_COLUMNS)
    _refuse_ambiguous_names(rows)
    to_arrow(rows.schema)
    record_key(config, rows.schema, readable_timestamps=False)
    partition_path(config, rows.schema, readable_timestamps=False)
    if options.operation is not Operation.DELETE and config.event_time:
        for name in config.ordering_fields:
            refuse_nested_type(name, field_type(rows.schema, name, "ordering"), "ordering")


def quoted_name(name: str) -> str:
    """A top-level column, dots and all."""
    return f"`{name.replace('`', '``')}`"


def _refuse_ambiguous_names(rows: DataFrame) -> None:
    names = [name.lower() for name in rows.columns]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise SchemaConflictError(f"columns that differ in case only, or not at all: {', '.join(twice)}")
    taken = [name for name in rows.columns if name.startswith(RESERVED_PREFIX)]
    if taken:
        raise SchemaConflictError(f"column names that sparkrobust keeps for itself: {', '.join(taken)}")


def _schema(rows: DataFrame, intent: Intent) -> TableSchema:
    table, options = intent.table, intent.options
    known = None if intent.replacing else table.schema()
    if options.operation is Operation.DELETE and known is not None:
        return known
    incoming = to_arrow(rows.schema)
    if known is None:
        return TableSchema.of_arrow(incoming, table.config.name)
    return reconcile(
        known,
        incoming,
        set_null_for_missing=options.set_null_for_missing_columns or options.reconcile_schema,
        allow_column_drop=options.allow_column_drop,
    ).schema


def _fingerprint(key: Column) -> Column:
    """A number of the row's key, small enough that the numbers of very many rows can be added up."""
    return F.xxhash64(key).bitwiseAND(F.lit(0xFFFFFFFF)).alias(FINGERPRINT)


def _bad_ordering(config: TableConfig, options: WriteOptions) -> Column:
    if options.operation is Operation.DELETE or not config.event_time:
        return F.lit(False)
    return reduce(or_, [F.col(quoted(name)).isNull() for name in config.ordering_fields])
