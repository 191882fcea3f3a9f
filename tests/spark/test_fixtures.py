"""Tables that the real Hudi made are read with the rows that Hudi itself reads."""

from __future__ import annotations

import datetime
import decimal
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as t

import sparkrobust as sr
from tests.interop.tables import META

READ = (
    "cow_all_types",
    "cow_all_types_bulk",
    "cow_archived",
    "cow_autokey",
    "cow_bucket_index",
    "cow_cdc",
    "cow_clustered",
    "cow_drop_partition_columns",
    "cow_evolved_schema",
    "cow_failed_inflight",
    "cow_insert_overwrite",
    "cow_insert_overwrite_table",
    "cow_keygen_complex",
    "cow_keygen_complex_single",
    "cow_keygen_custom",
    "cow_keygen_timestamp",
    "cow_no_meta_fields",
    "cow_nonpartitioned",
    "cow_partitioned",
    "cow_pending_clustering",
    "cow_restored",
    "cow_rolled_back",
    "cow_savepoint",
    "cow_schema_on_read",
    "cow_url_encoded",
    "v8_cow",
    "v8_cow_no_mdt",
)


def plain(value: Any, kind: t.DataType) -> Any:
    """A cell as the fixtures' JSON has it."""
    if value is None:
        return None
    if isinstance(kind, t.StructType):
        return {field.name: plain(value[field.name], field.dataType) for field in kind}
    if isinstance(kind, t.ArrayType):
        return [plain(item, kind.elementType) for item in value]
    if isinstance(kind, t.MapType):
        return sorted([key, plain(item, kind.valueType)] for key, item in value.items())
    if isinstance(value, (bytes, bytearray)):
        return "0x" + value.hex()
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    if isinstance(value, (datetime.date, datetime.datetime)):
        return value.isoformat()
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    return value


def expected(value: Any, kind: t.DataType) -> Any:
    """The JSON's own cell, maps in order of their keys."""
    if isinstance(kind, t.MapType) and value is not None:
        return sorted([key, expected(item, kind.valueType)] for key, item in value)
    return value


# Hudi's reader shows the field that a timestamp key generator read as text, whatever it is in the files.
SHOWN_AS_TEXT = {("cow_keygen_timestamp", "ts"): int}


def in_order(rows: Iterable[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(row, sort_keys=True) for row in rows)


@pytest.mark.parametrize("name", READ)
def test_a_table_of_the_real_hudi_is_read_with_hudis_rows(
    name: str, hudi_tables: Path, spark: SparkSession
) -> None:
    answer = json.loads((hudi_tables / f"{name}.expected.json").read_text("utf-8"))
    wanted = answer.get("rows_with_meta", answer["rows"])
    found = sr.read(spark).load(str(hudi_tables / name))
    columns = [field for field in found.schema if field.name in wanted[0]]
    assert {field.name for field in columns} == set(wanted[0])
    assert found.columns[: len(META)] == list(META)
    for (table, column), stored in SHOWN_AS_TEXT.items():
        if table == name:
            wanted = [{**row, column: stored(row[column])} for row in wanted]
    rows = [{f.name: plain(row[f.name], f.dataType) for f in columns} for row in found.collect()]
    assert in_order(rows) == in_order(
        {f.name: expected(row[f.name], f.dataType) for f in columns} for row in wanted
    )
