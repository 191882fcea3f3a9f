"""In which types the files of a snapshot store the table's columns.

A column's type may have been widened since a file was written, and old files are not rewritten.
Which types a file has is what the commit that wrote it says of its schema; for files whose commit
was archived, their own footers tell.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

from sparkrobust.coordinator.table import HudiTable
from sparkrobust.core.names import instant_file
from sparkrobust.core.view import BaseFile
from sparkrobust.formats.parquet import open_file
from sparkrobust.formats.schema import TableSchema, without_meta_columns

_FOOTER_THREADS = 16


def by_stored_types(
    table: HudiTable, schema: pa.Schema, files: list[BaseFile]
) -> list[tuple[pa.Schema, list[BaseFile]]]:
    """The files in groups that store the columns of ``schema`` in the same types, with those types.

    A column that a file lacks has its present type there: it reads as null.
    """
    by_instant: dict[str, list[BaseFile]] = {}
    for base in files:
        by_instant.setdefault(base.name.instant, []).append(base)
    groups: list[tuple[pa.Schema, list[BaseFile]]] = []
    unknown: list[BaseFile] = []
    for instant, written in by_instant.items():
        stored = _schema_of(table, instant)
        if stored is None:
            unknown += written
        else:
            _add(groups, _as_stored(schema, stored), written)
    with ThreadPoolExecutor(_FOOTER_THREADS) as pool:
        footers = pool.map(lambda base: _footer_schema(table, base), unknown)
        for base, stored in zip(unknown, footers, strict=True):
            _add(groups, _as_stored(schema, stored), [base])
    return groups


def _add(groups: list[tuple[pa.Schema, list[BaseFile]]], stored: pa.Schema, files: list[BaseFile]) -> None:
    for known, members in groups:
        if known.equals(stored):
            members += files
            return
    groups.append((stored, list(files)))


def _schema_of(table: HudiTable, time: str) -> pa.Schema | None:
    instant = next((i for i in table.timeline.completed_writes if i.time == time), None)
    text = table.commit(instant).schema if instant else None
    return TableSchema.of_avro(text, path=instant_file(instant)).arrow if instant and text else None


def _footer_schema(table: HudiTable, base: BaseFile) -> pa.Schema:
    with table.storage.open(base.path) as source, open_file(source, path=base.path) as file:
        return without_meta_columns(file.schema_arrow)


def _as_stored(schema: pa.Schema, stored: pa.Schema) -> pa.Schema:
    return pa.schema([_field(field, stored) for field in schema])


def _field(field: pa.Field, stored: pa.Schema) -> pa.Field:
    if field.name not in stored.names:
        return field
    return field.with_type(_type(field.type, stored.field(field.name).type))


def _type(wanted: pa.DataType, stored: pa.DataType) -> pa.DataType:
    """The shape that is wanted, with the leaves as they are stored."""
    if pa.types.is_struct(wanted) and pa.types.is_struct(stored):
        inner = {stored.field(i).name: stored.field(i).type for i in range(stored.num_fields)}
        return pa.struct(
            [
                field.with_type(_type(field.type, inner[field.name])) if field.name in inner else field
                for field in (wanted.field(i) for i in range(wanted.num_fields))
            ]
        )
    if pa.types.is_map(wanted) and pa.types.is_map(stored):
        return pa.map_(
            wanted.key_type, wanted.item_field.with_type(_type(wanted.item_type, stored.item_type))
        )
    if pa.types.is_list(wanted) and pa.types.is_list(stored):
        return pa.list_(wanted.value_field.with_type(_type(wanted.value_type, stored.value_type)))
    return stored
