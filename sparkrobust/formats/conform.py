"""Rows of one schema made into rows of another, in Arrow: for old files, and for incoming batches.

Columns are matched by name at every level; one that the rows lack becomes null.  Types are cast as
the rules of ``reconcile`` allow; a value that doesn't survive its cast is an error, never a null.
Numbers become text as Java spells them, because Hudi and Spark do it so.
"""

from __future__ import annotations

import decimal
import math

import pyarrow as pa
import pyarrow.compute as pc

from sparkrobust.errors import SchemaConflictError


def conform(rows: pa.Table | pa.RecordBatch, schema: pa.Schema) -> pa.Table:
    """The rows with exactly the columns and types of ``schema``.

    Raises
    ------
    SchemaConflictError
        A value does not fit its column's type, or a column that may not be null is missing.
    """
    table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
    if table.schema.equals(schema, check_metadata=False):
        return table.replace_schema_metadata(None)
    columns = []
    for field in schema:
        if field.name in table.schema.names:
            column = table.column(field.name)
            columns.append(
                column
                if column.type.equals(field.type)
                else pa.chunked_array(
                    [_column(chunk, field, field.name) for chunk in column.chunks], field.type
                )
            )
        elif field.nullable or not table.num_rows:
            columns.append(pa.chunked_array([pa.nulls(table.num_rows, field.type)]))
        else:
            raise SchemaConflictError(f"{field.name}: missing, and it may not be null")
    return pa.Table.from_arrays(columns, schema=pa.schema(list(schema)))


def _column(column: pa.Array, field: pa.Field, path: str) -> pa.Array:
    target = field.type
    if column.type.equals(target):
        return column
    types = pa.types
    if types.is_dictionary(column.type):
        return _column(column.dictionary_decode(), field, path)
    if types.is_null(column.type):
        return pa.nulls(len(column), target)
    if types.is_struct(target) and types.is_struct(column.type):
        return _struct(column, target, path)
    if types.is_list(target) and (types.is_list(column.type) or types.is_large_list(column.type)):
        return _list(column, target, path)
    if types.is_map(target) and types.is_map(column.type):
        return _map(column, target, path)
    return _leaf(column, target, path)


def _struct(column: pa.Array, target: pa.DataType, path: str) -> pa.Array:
    have = {column.type.field(i).name: i for i in range(column.type.num_fields)}
    wanted = [target.field(i) for i in range(target.num_fields)]
    parts = [
        _column(_part(column, have[field.name], field), field, f"{path}.{field.name}")
        if field.name in have
        else pa.nulls(len(column), field.type)
        for field in wanted
    ]
    return pa.StructArray.from_arrays(parts, fields=wanted, mask=column.is_null())


def _part(column: pa.Array, index: int, field: pa.Field) -> pa.Array:
    """One field of a column of structs, null where its struct is, unless it may not be null at all."""
    return pc.struct_field(column, [index]) if field.nullable else column.field(index)


def _list(column: pa.Array, target: pa.DataType, path: str) -> pa.Array:
    items = _column(column.flatten(), target.value_field, f"{path}.element")
    return pa.ListArray.from_arrays(
        _offsets(pc.list_value_length(column)), items, target, mask=column.is_null()
    )


def _map(column: pa.Array, target: pa.DataType, path: str) -> pa.Array:
    entries = column.cast(
        pa.list_(pa.struct([pa.field("key", column.type.key_type, False), column.type.item_field]))
    )
    flat = entries.flatten()
    keys = _leaf(pc.struct_field(flat, [0]), target.key_type, f"{path}.key")
    values = _column(pc.struct_field(flat, [1]), target.item_field, f"{path}.value")
    offsets = _offsets(pc.list_value_length(entries))
    return pa.MapArray.from_arrays(offsets, keys, values, target, mask=column.is_null())


def _offsets(lengths: pa.Array) -> pa.Array:
    """Where each list starts once all null and hidden items are gone, and where the last one ends."""
    ends = pc.cumulative_sum(pc.fill_null(lengths.cast(pa.int32()), 0))
    return pa.concat_arrays([pa.array([0], pa.int32()), ends])


def _leaf(column: pa.Array, target: pa.DataType, path: str) -> pa.Array:
    try:
        if pa.types.is_string(target) and pa.types.is_floating(column.type):
            narrow = pa.types.is_float32(column.type)
            return pa.array([_as_java(v, narrow) for v in column.to_pylist()], target)
        if pa.types.is_decimal(target) and not pa.types.is_decimal(column.type):
            return _to_decimal(column, target)
        if target.equals(pa.float32()) or target.equals(pa.float64()):
            return column.cast(target, safe=False)  # Avro's rules let numbers lose their last digits here
        return column.cast(target)
    except (pa.ArrowException, ValueError, decimal.InvalidOperation) as error:
        raise SchemaConflictError(
            f"{path}: a value of {column.type} does not fit {target} ({str(error)[:120]})"
        ) from error


def _to_decimal(column: pa.Array, target: pa.DataType) -> pa.Array:
    """Rounded half up, as Hudi and Spark do it; a value with too many digits is an error."""
    unit = decimal.Decimal(1).scaleb(-target.scale)
    context = decimal.Context(prec=max(target.precision, 38), rounding=decimal.ROUND_HALF_UP)
    found = []
    for value in column.to_pylist():
        exact = None if value is None else decimal.Decimal(repr(value) if isinstance(value, float) else value)
        found.append(None if exact is None else exact.quantize(unit, context=context))
    return pa.array(found, target)


def _as_java(value: float | None, narrow: bool) -> str | None:
    """``Double.toString`` and ``Float.toString``: the fewest digits that read back as the number."""
    if value is None:
        return None
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    text = _shortest_float32(value) if narrow else repr(value)
    sign, digits, exponent = decimal.Decimal(text).as_tuple()
    assert isinstance(exponent, int)  # only NaN and infinities have letters there
    mantissa = "".join(map(str, digits)).rstrip("0") or "0"
    exponent += len(digits) - 1
    prefix = "-" if sign else ""
    if mantissa == "0":
        return f"{prefix}0.0"
    if -3 <= exponent < 7:
        if exponent < 0:
            return f"{prefix}0.{'0' * (-exponent - 1)}{mantissa}"
        whole, rest = mantissa[: exponent + 1].ljust(exponent + 1, "0"), mantissa[exponent + 1 :]
        return f"{prefix}{whole}.{rest or '0'}"
    return f"{prefix}{mantissa[0]}.{mantissa[1:] or '0'}E{exponent}"


def _shortest_float32(value: float) -> str:
    for digits in range(1, 10):
        text = f"{value:.{digits}g}"
        if pa.scalar(float(text), pa.float32()).as_py() == value:
            return text
    return repr(value)
