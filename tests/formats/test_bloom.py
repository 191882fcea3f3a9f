"""Bloom filters, byte for byte against Hudi's own classes and the filters in Hudi's files."""

from __future__ import annotations

import base64
import uuid
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkrobust.errors import CorruptTableError
from sparkrobust.formats.bloom import BloomBuilder, BloomFilter, BloomKind
from sparkrobust.formats.parquet import bloom_filter
from tests.fixture_tables import data_files


def built(keys: list[str], kind: BloomKind, cuts: tuple[int, ...] = (), **sizes: Any) -> BloomFilter:
    builder = BloomBuilder(kind, **sizes)
    edges = [0, *cuts, len(keys)]
    for start, end in pairwise(edges):
        builder.add(pa.array(keys[start:end], pa.string()))
    return builder.finish()


def test_the_same_keys_give_the_filter_that_hudi_builds_however_they_are_batched(reference: Any) -> None:
    for case in reference("java-bloom.json"):
        keys, kind = case["keys"], BloomKind(case["kind"])
        sizes = {"entries": case["entries"], "error_rate": case["error"], "max_entries": case["max"]}
        for cuts in ((), (len(keys) // 3, len(keys) // 2)):
            assert built(keys, kind, cuts, **sizes).to_text() == case["filter"], (case["kind"], len(keys))


def test_hudis_filter_knows_its_keys_and_hardly_any_others(reference: Any) -> None:
    case = next(c for c in reference("java-bloom.json") if c["kind"] == "SIMPLE" and c["keys"])
    found = BloomFilter.from_text(case["filter"], "SIMPLE", path="p")
    assert found.might_contain(pa.array(case["keys"])).to_pylist() == [True] * len(case["keys"])
    strangers = pa.array([str(uuid.UUID(int=i)) for i in range(1000)])
    assert found.might_contain(strangers).true_count < 50


def test_a_row_of_each_growing_filter_is_looked_at(reference: Any) -> None:
    for case in reference("java-bloom.json"):
        if case["kind"] == "DYNAMIC_V0":
            found = BloomFilter.from_text(case["filter"], "DYNAMIC_V0", path="p")
            assert found.might_contain(pa.array(case["keys"], pa.string())).true_count == len(case["keys"])


def test_the_filter_of_every_file_of_every_fixture_is_the_one_that_we_build(hudi_tables: Path) -> None:
    seen = set()
    for table in sorted(path for path in hudi_tables.iterdir() if path.is_dir()):
        if table.name == "cow_no_meta_fields":  # a table that keeps no keys, and so no filters
            continue
        for file in data_files(table):
            keys = pq.read_table(file, columns=["_hoodie_record_key"], partitioning=None).column(0)
            theirs = bloom_filter(pq.read_metadata(file), path=str(file))
            builder = BloomBuilder()
            builder.add(keys)
            assert theirs == builder.finish(), file
            seen.add(table.name)
    assert len(seen) > 20


@settings(max_examples=50)
@given(
    st.lists(st.text(st.characters(exclude_categories=("Cs",)), max_size=12), max_size=40),
    st.sampled_from(BloomKind),
)
def test_a_key_that_was_added_is_found_after_writing_and_reading(keys: list[str], kind: BloomKind) -> None:
    text = built(keys, kind, entries=20, error_rate=0.01, max_entries=50).to_text()
    found = BloomFilter.from_text(text, kind.value, path="p")
    assert found.to_text() == text
    assert found.might_contain(pa.array(keys, pa.string())).to_pylist() == [True] * len(keys)


def test_many_keys_at_once_give_the_same_filter_as_few_at_a_time() -> None:
    keys = [str(uuid.UUID(int=i * i)) for i in range(2000)]
    assert built(keys, BloomKind.DYNAMIC_V0) == built(
        keys, BloomKind.DYNAMIC_V0, tuple(range(100, 2000, 100))
    )


def test_a_slice_of_a_larger_column_is_hashed_as_the_keys_it_shows() -> None:
    keys = pa.array(["ab", "é", "abc", "abcdefg", None, "xyz"])
    builder = BloomBuilder(entries=10, error_rate=0.1)
    builder.add(keys.slice(1, 3))
    assert builder.finish() == built(
        ["é", "abc", "abcdefg"], BloomKind.DYNAMIC_V0, entries=10, error_rate=0.1
    )


def test_nulls_are_in_no_file() -> None:
    found = built(["a"], BloomKind.SIMPLE, entries=10, error_rate=0.1)
    assert found.might_contain(pa.chunked_array([["a", None], []], pa.string())).to_pylist() == [True, False]


def test_a_filter_of_unknown_kind_or_cut_short_is_corrupt() -> None:
    text = built(["a"], BloomKind.DYNAMIC_V0, entries=10, error_rate=0.1).to_text()
    raw = base64.b64decode(text)
    for odd, kind in (
        (text, "ROUND"),
        (text, "SIMPLE"),
        (text[:-4], "DYNAMIC_V0"),
        ("", "DYNAMIC_V0"),
        ("*", "SIMPLE"),
        (base64.b64encode(raw[:21] + b"\x7f\xff\xff\xff" + raw[25:]), "DYNAMIC_V0"),
    ):
        with pytest.raises(CorruptTableError, match=r"^some/file: expected a bloom filter") as caught:
            BloomFilter.from_text(odd, kind, path="some/file")
        assert caught.value.path == "some/file"


@given(st.binary(max_size=80), st.sampled_from(["SIMPLE", "DYNAMIC_V0", None]))
def test_any_bytes_are_a_filter_or_corrupt(data: bytes, kind: str | None) -> None:
    good = base64.b64decode(built(["a"], BloomKind.SIMPLE, entries=10, error_rate=0.1).to_text())
    for text in (data, base64.b64encode(data), base64.b64encode(good[: len(good) - 3] + data[:3])):
        try:
            found = BloomFilter.from_text(text, kind, path="p")
        except CorruptTableError:
            continue
        found.might_contain(pa.array(["a", "bc"]))
