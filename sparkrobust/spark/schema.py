"""Spark's types and Arrow's, for every type that a Hudi table can hold."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import types as t

from sparkrobust.errors import SchemaConflictError

_FLAT: list[tuple[type[t.DataType], pa.DataType]] = [
    (t.BooleanType, pa.bool_()),
    # Hudi, through Avro, knows no integers below 32 bits.
    (t.ByteType, pa.int32()),
    (t.ShortType, pa.int32()),
    (t.IntegerType, pa.int32()),
    (t.LongType, pa.int64()),
    (t.FloatType, pa.float32()),
    (t.DoubleType, pa.float64()),
    (t.BinaryType, pa.binary()),
    (t.DateType, pa.date32()),
    (t.TimestampType, pa.timestamp("us", tz="UTC")),
    (t.TimestampNTZType, pa.timestamp("us")),
]


def to_arrow(struct: t.StructType) -> pa.Schema:
    """A DataFrame's schema in Arrow; types that no Hudi table holds are all named in the error."""
    problems: list[str] = []
    fields = [pa.field(f.name, _arrow(f.dataType, f.name, problems), f.nullable) for f in struct.fields]
    if problems:
        raise SchemaConflictError(
            f"columns of types that a Hudi table can't hold: {'; '.join(problems)}",
            hint="cast or drop them before the write",
        )
    return pa.schema(fields)


def _arrow(kind: t.DataType, where: str, problems: list[str]) -> pa.DataType:
    for spark_type, arrow_type in _FLAT:
        if type(kind) is spark_type:
            return arrow_type
    if isinstance(kind, (t.StringType, t.VarcharType, t.CharType)):
        return pa.string()
    if isinstance(kind, t.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, t.ArrayType):
        element = _arrow(kind.elementType, f"{where}.element", problems)
        return pa.list_(pa.field("element", element, kind.containsNull))
    if isinstance(kind, t.MapType):
        if not isinstance(kind.keyType, (t.StringType, t.VarcharType, t.CharType)):
            problems.append(
                f"{where} (map with keys of type {kind.keyType.simpleString()}; only text can be)"
            )
        value = _arrow(kind.valueType, f"{where}.value", problems)
        return pa.map_(pa.string(), pa.field("value", value, kind.valueContainsNull))
    if isinstance(kind, t.StructType):
        return pa.struct(
            [pa.field(f.name, _arrow(f.dataType, f"{where}.{f.name}", problems), f.nullable) for f in kind]
        )
    problems.append(f"{where} ({kind.simpleString()})")
    return pa.string()


def to_spark(schema: pa.Schema) -> t.StructType:
    """An Arrow schema as Spark reads it from the table's files: everything may be null."""
    return t.StructType([t.StructField(f.name, _spark(f.type), True) for f in schema])


def _spark(kind: pa.DataType) -> t.DataType:
    for spark_type, arrow_type in reversed(_FLAT):
        if arrow_type.equals(kind):
            found: t.DataType = spark_type()
            return found
    if pa.types.is_string(kind):
        return t.StringType()
    if pa.types.is_decimal(kind):
        return t.DecimalType(kind.precision, kind.scale)
    if pa.types.is_map(kind):
        return t.MapType(t.StringType(), _spark(kind.item_type), True)
    if pa.types.is_list(kind):
        return t.ArrayType(_spark(kind.value_type), True)
    if pa.types.is_struct(kind):
        return t.StructType([t.StructField(f.name, _spark(f.type), True) for f in kind])
    raise SchemaConflictError(f"the table has a column of type {kind}, which Spark does not have")
