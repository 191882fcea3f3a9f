"""Spark's own JSON of a schema as Arrow, in the types that Spark sends; for the tests alone."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

_PLAIN = {
    "integer": pa.int32(),
    "long": pa.int64(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "Europe/Berlin"),
    "timestamp_ntz": pa.timestamp("us"),
    "void": pa.null(),
    "interval day": pa.duration("us"),
}


def arrow_of(kind: Any) -> pa.DataType:
    """The Arrow type of one Spark type."""
    if isinstance(kind, str):
        if kind.startswith("decimal"):
            precision, scale = kind[len("decimal(") : -1].split(",")
            return pa.decimal128(int(precision), int(scale))
        return _PLAIN[kind]
    if kind["type"] == "struct":
        return pa.struct(list(arrow_schema_of(kind["fields"])))
    if kind["type"] == "array":
        return pa.list_(pa.field("element", arrow_of(kind["elementType"]), kind["containsNull"]))
    return pa.map_(
        arrow_of(kind["keyType"]), pa.field("value", arrow_of(kind["valueType"]), kind["valueContainsNull"])
    )


def arrow_schema_of(fields: list[dict[str, Any]]) -> pa.Schema:
    """The Arrow schema of a Spark struct's fields."""
    return pa.schema([pa.field(f["name"], arrow_of(f["type"]), f["nullable"]) for f in fields])
