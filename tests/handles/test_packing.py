"""Rows as bytes: what was packed comes back, in pieces that are not much larger than was asked for."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkrobust.core.names import DEFAULT_PARTITION
from sparkrobust.handles.packing import pack, pieces, unpack
from sparkrobust.handles.plan import KEY, PATH, Derived
from sparkrobust.handles.rows import bytes_of, with_derived

NESTED = pa.map_(pa.string(), pa.struct([("a", pa.list_(pa.int64())), ("b", pa.decimal128(20, 3))]))


@pytest.mark.parametrize("values", [[], [None], [None, [("k", {"a": [1, None], "b": None})], []]])
def test_a_packed_table_comes_back_whatever_its_types(values: list[Any]) -> None:
    table = pa.table(
        {"n": pa.array(values, NESTED), "t": pa.array([None] * len(values), pa.timestamp("us", "UTC"))}
    )
    assert unpack(pack(table)).equals(table)


@given(
    st.lists(st.lists(st.binary(max_size=300), min_size=1, max_size=30), max_size=6),
    st.sampled_from([1, 100, 1000, 1 << 20]),
)
def test_pieces_hold_every_row_in_order_and_none_is_much_too_large(
    rows: list[list[bytes]], size: int
) -> None:
    batches = [pa.record_batch({"v": pa.array(values, pa.binary())}) for values in rows]
    found = list(pieces(batches, size))
    assert [v for piece in found for v in piece["v"].to_pylist()] == [v for values in rows for v in values]
    for piece in found:
        assert piece.num_rows
        # A piece ends with the part that filled it, which is cut by the mean size of its batch's rows.
        assert piece.num_rows == 1 or bytes_of(piece) <= 3 * size + 2 * 300 * 30


def test_one_batch_of_wide_rows_is_cut() -> None:
    batch = pa.record_batch({"v": pa.array([b"x" * 10_000] * 100)})
    assert max(piece.num_rows for piece in pieces([batch], 50_000)) < 10


def test_key_and_path_are_taken_from_the_columns_that_they_equal() -> None:
    rows = pa.record_batch({"id": ["a", None, ""], "part": ["p", None, ""]})
    found = with_derived(rows, Derived(key="id", path="part"))
    assert found[KEY].to_pylist() == ["a", None, ""]
    assert found[PATH].to_pylist() == ["p", DEFAULT_PARTITION, DEFAULT_PARTITION]
    assert with_derived(rows, Derived(path=""))[PATH].to_pylist() == ["", "", ""]
    assert with_derived(rows, Derived()).schema.names == ["id", "part"]
