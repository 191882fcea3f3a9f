"""Record keys and partition paths as DataFrame expressions, spelled as Hudi spells them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import and_

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as t

from sparkrobust.core.names import DEFAULT_PARTITION
from sparkrobust.core.partition_path import ESCAPED
from sparkrobust.core.table_config import TableConfig
from sparkrobust.errors import InvalidKeyError
from sparkrobust.handles.plan import Derived

_NULL, _EMPTY = "__null__", "__empty__"


def quoted(name: str) -> str:
    """A field, nested ones by dots, as Spark takes it whatever characters are in it."""
    return ".".join(f"`{part.replace('`', '``')}`" for part in name.split("."))


def field_type(schema: t.StructType, name: str, what: str) -> t.DataType:
    """The type of a field, nested ones by dots, in its own case; ``InvalidKeyError`` where it is missing."""
    kind: t.DataType = schema
    for part in name.split("."):
        found = None
        if isinstance(kind, t.StructType):
            found = next((f for f in kind.fields if f.name == part), None)
        if found is None:
            raise InvalidKeyError(
                f"the {what} field {name!r} is not in the rows; they have {', '.join(schema.names)}"
            )
        kind = found.dataType
    return kind


def text_of(name: str, kind: t.DataType, what: str, *, readable_timestamps: bool) -> Column:
    """A value as the text that it becomes in a key or a path."""
    column = F.col(quoted(name))
    if isinstance(kind, t.TimestampType):
        return _readable(column) if readable_timestamps else F.unix_micros(column).cast("string")
    if isinstance(kind, t.TimestampNTZType):
        epoch = "TIMESTAMP_NTZ'1970-01-01 00:00:00'"
        return F.expr(f"timestampdiff(MICROSECOND, {epoch}, {quoted(name)})").cast("string")
    if isinstance(kind, t.DecimalType):
        # Java's spelling, which a cast gives or not by the session's ANSI mode.
        return F.when(column.isNotNull(), F.format_string("%s", column))
    if isinstance(kind, t.BinaryType):
        return F.lower(F.hex(column))
    refuse_nested_type(name, kind, what)
    return column.cast("string")


def refuse_nested_type(name: str, kind: t.DataType, what: str) -> None:
    """``InvalidKeyError`` for a field that has no one value."""
    if isinstance(kind, (t.ArrayType, t.MapType, t.StructType)):
        raise InvalidKeyError(
            f"the {what} field {name!r} is of type {kind.simpleString()}, which can't be one"
        )


def _readable(column: Column) -> Column:
    fraction = F.rtrim(F.regexp_replace(F.date_format(column, "SSSSSS"), "0+$", ""))
    return F.concat(
        F.date_format(column, "yyyy-MM-dd HH:mm:ss."), F.when(fraction == "", "0").otherwise(fraction)
    )


def record_key(config: TableConfig, schema: t.StructType, *, readable_timestamps: bool) -> Column:
    """The record key of each row; null or empty where it is missing, which later is an error."""
    texts = [
        text_of(
            name,
            field_type(schema, name, "record key"),
            "record key",
            readable_timestamps=readable_timestamps,
        )
        for name in config.key_fields
    ]
    if not config.keys_are_composed:
        return texts[0]
    parts = [
        F.concat(F.lit(f"{name}:"), F.when(text.isNull(), _NULL).when(text == "", _EMPTY).otherwise(text))
        for name, text in zip(config.key_fields, texts, strict=True)
    ]
    missing = reduce(and_, [text.isNull() | (text == "") for text in texts])
    return F.when(~missing, F.concat_ws(",", *parts))


def partition_path(config: TableConfig, schema: t.StructType, *, readable_timestamps: bool) -> Column:
    """The partition path of each row, relative to the table."""
    parts: Sequence[Column] = [
        _path_part(config, schema, name, readable_timestamps) for name in config.partition_fields
    ]
    return F.concat_ws("/", *parts) if parts else F.lit("")


def _path_part(config: TableConfig, schema: t.StructType, name: str, readable_timestamps: bool) -> Column:
    kind = field_type(schema, name, "partition")
    text = text_of(name, kind, "partition", readable_timestamps=readable_timestamps)
    value = text
    if config.url_encoded:
        # The percent sign first: what the others become has one.
        for char in sorted(ESCAPED, key=lambda c: c != "%"):
            value = F.replace(value, F.lit(char), F.lit(f"%{ord(char):02X}"))
    value = F.when(text.isNull() | (text == ""), DEFAULT_PARTITION).otherwise(value)
    return F.concat(F.lit(f"{name}="), value) if config.hive_style else value


def derived(config: TableConfig, schema: t.StructType) -> Derived:
    """What a task can take from the user's columns as it is: texts that are spelled as they stand."""
    key = path = None
    if not config.keys_are_composed:
        key = _plain_text(config.key_fields[0], schema)
    if not config.partition_fields:
        path = ""
    elif len(config.partition_fields) == 1 and not config.hive_style and not config.url_encoded:
        path = _plain_text(config.partition_fields[0], schema)
    return Derived(key=key, path=path)


def _plain_text(name: str, schema: t.StructType) -> str | None:
    is_text = any(field.name == name and type(field.dataType) is t.StringType for field in schema.fields)
    return name if is_text and "." not in name else None
