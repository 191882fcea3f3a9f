"""Rows in Arrow: what a handle does to tables, vectorised, without I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sparkrobust.core.names import COMMIT_SEQNO, COMMIT_TIME, DEFAULT_PARTITION, IS_DELETED, RECORD_KEY
from sparkrobust.core.partition_path import problem_with
from sparkrobust.errors import InvalidKeyError, UnsafePathError
from sparkrobust.formats.conform import conform
from sparkrobust.handles.plan import KEY, PATH, SEQUENCE, SLOT, Derived, Rules

LEADING = (COMMIT_TIME, COMMIT_SEQNO, RECORD_KEY)
"""The meta columns that a row brings along; the file adds the other two as it is written."""


def check_keys(table: pa.Table) -> None:
    """Every row has a record key that is neither null nor empty, or ``InvalidKeyError``."""
    refuse_missing_keys(missing_keys(table))


def missing_keys(table: pa.Table) -> int:
    """How many rows have a record key that is null or empty."""
    keys = table[KEY]
    empty: int = pc.sum(pc.equal(pc.binary_length(keys), 0)).as_py() or 0
    return int(keys.null_count) + empty


def refuse_missing_keys(rows: int) -> None:
    """``InvalidKeyError`` if there are such rows."""
    if rows:
        raise InvalidKeyError(f"{rows} rows have a record key that is null or empty")


def check_ordering(table: pa.Table, fields: tuple[str, ...]) -> None:
    """Every row has a value in every ordering field, or ``InvalidKeyError``."""
    for name, column in zip(fields, ordering_values(table, fields).columns, strict=True):
        if column.null_count:
            raise InvalidKeyError(f"{column.null_count} rows have a null in the ordering field {name!r}")


def check_path(path: str) -> None:
    """The partition path stays in the table, or ``UnsafePathError``."""
    problem = problem_with(path)
    if problem:
        raise UnsafePathError(
            f"the partition path {path[:200]!r} is refused: {problem}",
            hint="clean the partition column, or set hoodie.datasource.write.partitionpath.urlencode=true",
        )


def with_derived(rows: pa.RecordBatch, derived: Derived) -> pa.RecordBatch:
    """The rows with their key and path as columns of their own."""
    if derived.key is not None:
        rows = rows.append_column(KEY, rows[derived.key])
    if derived.path == "":
        rows = rows.append_column(PATH, pa.repeat(pa.scalar(""), rows.num_rows))
    elif derived.path is not None:
        paths = rows[derived.path]
        missing = pc.fill_null(pc.equal(pc.binary_length(paths), 0), True)
        rows = rows.append_column(PATH, pc.if_else(missing, DEFAULT_PARTITION, paths))
    return rows


def constant(text: str, count: int) -> pa.DictionaryArray:
    """The same text for every row, in a few bytes a row."""
    return pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), count), pa.array([text]))


def positions(count: int) -> pa.Array:
    """0, 1, … count - 1."""
    return pc.subtract(pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), count)), 1)


def stamped(table: pa.Table, schema: pa.Schema, instant: str, slot: int, first: int) -> pa.Table:
    """New rows as they stand in a file: commit time, sequence number and key, then the data."""
    count = table.num_rows
    numbers = pc.add(positions(count), first).cast(pa.string())
    seqno = pc.binary_join_element_wise(pa.scalar(f"{instant}_{slot}"), numbers, "_")
    data = conform(table, schema)
    time = pa.chunked_array([pa.repeat(pa.scalar(instant), count)])
    columns = [time, pa.chunked_array([seqno]), table[KEY], *data.columns]
    return pa.Table.from_arrays(columns, schema=file_schema(schema))


def file_schema(schema: pa.Schema) -> pa.Schema:
    """The leading meta columns and the data."""
    return pa.schema([pa.field(name, pa.string()) for name in LEADING] + list(schema))


def members(count: int, chosen: pa.Array | pa.ChunkedArray) -> pa.Array:
    """For every position below ``count``, whether it is among ``chosen``."""
    if isinstance(chosen, pa.ChunkedArray):
        chosen = chosen.combine_chunks()
    return pc.is_in(positions(count), value_set=chosen.cast(pa.int64()))


def newest_of_each_key(table: pa.Table, ordering: tuple[str, ...]) -> pa.Array | None:
    """Which rows to keep, one a key; ``None`` where no key stands twice.

    The largest by the ordering fields wins, of equal ones the last that came in.
    """
    if pc.count_distinct(table[KEY]).as_py() == table.num_rows:
        return None
    ranked = table.select([name for name in (KEY, SEQUENCE) if name in table.column_names])
    for name, column in zip(ordering, ordering_values(table, ordering).columns, strict=True):
        ranked = ranked.append_column(name, column)
    by = [name for name in (KEY, *ordering, SEQUENCE) if name in ranked.column_names]
    order = pc.sort_indices(ranked, sort_keys=[(name, "ascending") for name in by])
    keys = pa.chunked_array([ranked[KEY].take(order).combine_chunks()]).combine_chunks()
    changes = pc.not_equal(keys.slice(0, len(keys) - 1), keys.slice(1))
    last = pa.concat_arrays([changes, pa.array([True])])
    return members(table.num_rows, order.filter(last))


def ordering_values(table: pa.Table, ordering: tuple[str, ...]) -> pa.Table:
    """The columns of the ordering fields, nested ones by dots, under the names of the fields."""
    columns = []
    for name in ordering:
        if name in table.column_names:
            columns.append(table[name])
        else:
            top, *inner = name.split(".")
            columns.append(pc.struct_field(table[top], inner))
    return pa.table(columns, names=list(ordering))


def split(table: pa.Table, column: str) -> list[tuple[Any, pa.Table]]:
    """The rows of each value of a column that has no nulls, in the order in which they came."""
    codes = pc.dictionary_encode(table[column].combine_chunks())
    if isinstance(codes, pa.ChunkedArray):
        codes = codes.combine_chunks()
    values = codes.dictionary.to_pylist()
    if len(values) == 1:
        return [(values[0], table)]
    order = pc.sort_indices(codes.indices)
    counts = {item["values"]: item["counts"] for item in pc.value_counts(codes.indices).to_pylist()}
    grouped = table.take(order)
    found, start = [], 0
    for code, value in enumerate(values):
        found.append((value, grouped.slice(start, counts[code])))
        start += counts[code]
    return found


def renumbered(rows: pa.RecordBatch, slots: Mapping[int, int]) -> pa.RecordBatch:
    """Rows of these slots, as rows of the slots that are done in their place."""
    known = pa.array(list(slots), pa.int32())
    numbers = pa.array(list(slots.values()), pa.int32()).take(pc.index_in(rows[SLOT], value_set=known))
    return rows.set_column(rows.schema.get_field_index(SLOT), SLOT, numbers)


def deleted(table: pa.Table, rules: Rules) -> pa.ChunkedArray | None:
    """Which incoming rows delete their key; ``None`` where none can."""
    if rules.delete:
        return pa.chunked_array([pa.repeat(pa.scalar(True), table.num_rows)])
    if IS_DELETED in table.column_names:
        return pc.fill_null(table[IS_DELETED].cast(pa.bool_()), False)
    return None


def living(table: pa.Table, rules: Rules) -> pa.Table:
    """The incoming rows that are no deletes."""
    gone = deleted(table, rules)
    return table if gone is None else table.filter(pc.invert(gone))


def replace(column: pa.Array, mask: pa.Array, values: pa.Array) -> pa.Array:
    """``column`` with the rows that ``mask`` marks replaced, in order, by ``values``."""
    if pa.types.is_nested(column.type):
        # Arrow replaces flat values only; of nested ones it can pick from old and new together.
        moved = pc.add(positions(len(values)), len(column))
        picked = pc.replace_with_mask(positions(len(column)), mask, moved)
        return pa.concat_arrays([column, values]).take(picked)
    return pc.replace_with_mask(column, mask, values)


def single(column: pa.ChunkedArray) -> pa.Array:
    """A column's one chunk, put together if it has several."""
    if column.num_chunks == 1:
        return column.chunk(0)
    found = column.combine_chunks()
    # Depending on its version, Arrow gives a chunked array of one chunk or the chunk itself.
    return found.chunk(0) if isinstance(found, pa.ChunkedArray) else found


def not_older(incoming: pa.Table, stored: pa.Table, ordering: tuple[str, ...]) -> pa.Array:
    """Row by row: whether the incoming ordering values are at least the stored ones."""
    verdict = pa.repeat(pa.scalar(True), incoming.num_rows)
    for name in reversed(ordering):
        new, old = single(incoming[name]), single(stored[name])
        further = pc.or_(_greater(new, old), pc.and_(_equal(new, old), verdict))
        # A row that was stored without an ordering value gives way to any.
        verdict = pc.fill_null(further, True)
    return verdict


def _greater(new: pa.Array, old: pa.Array) -> pa.Array:
    """As Java compares: a NaN is above every number."""
    if not pa.types.is_floating(new.type):
        return pc.greater(new, old)
    return pc.or_(pc.greater(new, old), pc.and_(pc.is_nan(new), pc.invert(pc.is_nan(old))))


def _equal(new: pa.Array, old: pa.Array) -> pa.Array:
    if not pa.types.is_floating(new.type):
        return pc.equal(new, old)
    return pc.or_(pc.equal(new, old), pc.and_(pc.is_nan(new), pc.is_nan(old)))


def bytes_of(table: pa.Table) -> int:
    """About what the rows take in memory.

    ``nbytes`` crashes on null maps of nested values as Spark sends them; what nested columns refer to
    is counted whole instead, which for a slice is too much.
    """
    return sum(
        column.get_total_buffer_size() if pa.types.is_nested(column.type) else column.nbytes
        for column in table.columns
    )
