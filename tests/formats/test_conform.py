"""Rows brought to another schema: by name, at every level, without losing a value silently."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkrobust.errors import SchemaConflictError
from sparkrobust.formats.conform import conform

ROWS = pa.table(
    {
        "a": pa.array(
            [[{"x": 1, "y": "p"}, None], None, [], [{"x": None, "y": "q"}]],
            pa.list_(pa.struct([("x", pa.int32()), ("y", pa.string())])),
        ),
        "m": pa.array([[("k", 1)], None, [], [("a", None), ("b", 2)]], pa.map_(pa.string(), pa.int32())),
        "s": pa.array([None, {"z": 1.5}, {"z": None}, {"z": 2.0}], pa.struct([("z", pa.float32())])),
        "i": pa.array([1, None, 3, 4], pa.int32()),
    }
)
WIDER = pa.schema(
    [
        ("i", pa.string()),
        ("new", pa.int64()),
        ("s", pa.struct([("more", pa.string()), ("z", pa.float64())])),
        ("m", pa.map_(pa.string(), pa.int64())),
        (
            "a",
            pa.list_(
                pa.field("element", pa.struct([("y", pa.string()), ("w", pa.date32()), ("x", pa.int64())]))
            ),
        ),
    ]
)


def wide(row: dict[str, Any]) -> dict[str, Any]:
    """The same by hand."""
    items = row["a"] and [i and {"y": i["y"], "w": None, "x": i["x"]} for i in row["a"]]
    struct = row["s"] and {"more": None, "z": row["s"]["z"]}
    number = None if row["i"] is None else str(row["i"])
    return {"i": number, "new": None, "s": struct, "m": row["m"], "a": items}


@given(st.integers(0, 4), st.integers(0, 4))
def test_columns_are_found_by_name_at_every_level_in_any_slice(start: int, count: int) -> None:
    part = ROWS.slice(start, count)
    found = conform(part, WIDER)
    found.validate(full=True)
    assert found.schema == WIDER
    assert found.to_pylist() == [wide(row) for row in part.to_pylist()]


def test_chunks_and_batches_are_the_same_rows() -> None:
    twice = pa.concat_tables([ROWS, ROWS.slice(1)])
    assert conform(twice, WIDER).to_pylist() == [wide(row) for row in twice.to_pylist()]
    assert conform(ROWS.to_batches()[0], WIDER).to_pylist() == conform(ROWS, WIDER).to_pylist()


def test_rows_that_fit_are_passed_on_as_they_are() -> None:
    found = conform(ROWS.replace_schema_metadata({"k": "v"}), ROWS.schema)
    assert found.schema.metadata is None
    assert found.column("i").chunk(0).buffers()[1].address == ROWS.column("i").chunk(0).buffers()[1].address


@pytest.mark.parametrize(
    ("values", "source", "target", "expected"),
    [
        ([7, None], pa.int64(), pa.string(), ["7", None]),
        (
            [1.5, 1.0, 1e10, 1e7, 9999999.0],
            pa.float64(),
            pa.string(),
            ["1.5", "1.0", "1.0E10", "1.0E7", "9999999.0"],
        ),
        ([0.001, 1e-4, -0.0, 1e22], pa.float64(), pa.string(), ["0.001", "1.0E-4", "-0.0", "1.0E22"]),
        ([float("nan"), float("-inf")], pa.float64(), pa.string(), ["NaN", "-Infinity"]),
        ([1.1, 3.4e38, 16777216], pa.float32(), pa.string(), ["1.1", "3.4E38", "1.6777216E7"]),
        ([Decimal("1.25")], pa.decimal128(10, 2), pa.string(), ["1.25"]),
        ([1.239, None], pa.float64(), pa.decimal128(5, 2), [Decimal("1.24"), None]),
        (["7", "-3.5"], pa.string(), pa.decimal128(5, 2), [Decimal("7.00"), Decimal("-3.50")]),
        ([7], pa.int64(), pa.decimal128(5, 2), [Decimal("7.00")]),
        ([Decimal("1.25")], pa.decimal128(10, 2), pa.decimal128(20, 2), [Decimal("1.25")]),
        (["2024-01-02"], pa.string(), pa.date32(), [date(2024, 1, 2)]),
        ([date(2024, 1, 2)], pa.date32(), pa.string(), ["2024-01-02"]),
        (["é"], pa.string(), pa.binary(), ["é".encode()]),
        (["é".encode()], pa.binary(), pa.string(), ["é"]),
        ([(1 << 60) + 1], pa.int64(), pa.float32(), [float(1 << 60)]),
        (["a"], pa.dictionary(pa.int32(), pa.string()), pa.string(), ["a"]),
        ([["a"]], pa.large_list(pa.large_string()), pa.list_(pa.string()), [["a"]]),
        ([None], pa.null(), pa.list_(pa.string()), [None]),
    ],
)
def test_values_become_what_hudi_makes_of_them(
    values: list[Any], source: pa.DataType, target: pa.DataType, expected: list[Any]
) -> None:
    rows = pa.table({"c": pa.array(values, source)})
    assert conform(rows, pa.schema([("c", target)])).column("c").to_pylist() == expected


@pytest.mark.parametrize(
    ("values", "source", "target"),
    [
        ([123456], pa.int64(), pa.decimal128(5, 2)),
        (["x"], pa.string(), pa.decimal128(5, 2)),
        ([float("nan")], pa.float64(), pa.decimal128(5, 2)),
        (["7"], pa.string(), pa.date32()),
        ([b"\xff"], pa.binary(), pa.string()),
        ([1], pa.timestamp("us"), pa.timestamp("ms")),
        ([1 << 40], pa.int64(), pa.int32()),
        ([[1]], pa.list_(pa.int32()), pa.int32()),
    ],
)
def test_a_value_that_does_not_fit_is_an_error_that_names_the_column(
    values: list[Any], source: pa.DataType, target: pa.DataType
) -> None:
    rows = pa.table({"c": pa.array([{"d": v} for v in values], pa.struct([("d", source)]))})
    with pytest.raises(SchemaConflictError, match=r"^c\.d: a value of"):
        conform(rows, pa.schema([("c", pa.struct([("d", target)]))]))


def test_a_column_that_may_not_be_null_must_be_there() -> None:
    with pytest.raises(SchemaConflictError, match=r"^k: missing"):
        conform(ROWS, pa.schema([pa.field("k", pa.int32(), False)]))
    assert conform(ROWS.slice(0, 0), pa.schema([pa.field("k", pa.int32(), False)])).num_rows == 0


def test_a_required_field_of_a_struct_that_is_null_stays_required() -> None:
    source = pa.struct([pa.field("x", pa.int32(), False)])
    target = pa.struct([pa.field("x", pa.int64(), False)])
    rows = pa.table({"c": pa.array([{"x": 1}, None], source)})
    found = conform(rows, pa.schema([("c", target)]))
    found.validate(full=True)
    assert found.column("c").to_pylist() == [{"x": 1}, None]
