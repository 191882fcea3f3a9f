"""Base files: what the footer says, written and read, and torn ones."""

from __future__ import annotations

import errno
import io
import itertools
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkrobust.core.key_hashes import hashes_of
from sparkrobust.errors import CorruptTableError, InternalError
from sparkrobust.formats.bloom import BloomBuilder
from sparkrobust.formats.new_keys import KeyHashes
from sparkrobust.formats.parquet import (
    RECORD_KEY,
    BaseFileWriter,
    KeyRange,
    WriteSettings,
    bloom_filter,
    key_range,
    key_range_of,
    key_values,
    open_file,
    read_columns,
)
from sparkrobust.formats.schema import TableSchema, with_meta_columns
from tests.fixture_tables import data_files
from tests.formats.spark_types import arrow_schema_of

SCHEMA = with_meta_columns(pa.schema([("n", pa.int64())]))


def rows(*keys: str) -> pa.Table:
    meta = {name: ["x"] * len(keys) for name in SCHEMA.names[:5]}
    return (
        pa.table({**meta, RECORD_KEY: list(keys), "n": list(range(len(keys)))})
        .select(SCHEMA.names)
        .cast(SCHEMA)
    )


def written(*tables: pa.Table, **arguments: Any) -> bytes:
    sink = io.BytesIO()
    with BaseFileWriter(sink, SCHEMA, **arguments) as writer:
        for table in tables:
            writer.write(table)
    return sink.getvalue()


def footer(data: bytes) -> pq.FileMetaData:
    return open_file(io.BytesIO(data), path="p").metadata


def test_the_key_range_of_every_file_of_every_fixture_is_that_of_its_rows(hudi_tables: Path) -> None:
    seen = 0
    for table in sorted(path for path in hudi_tables.iterdir() if path.is_dir()):
        for file in data_files(table):
            metadata = pq.read_metadata(file)
            keys = pq.read_table(file, columns=[RECORD_KEY], partitioning=None).column(0)
            assert key_range(metadata, path=str(file)) == key_range_of(keys), file
            seen += 1
    assert seen > 90


def test_the_key_range_and_the_spark_mark_stand_in_the_footer_and_no_arrow_schema() -> None:
    data = written(rows("b", "é", "a"), rows("Z", "𝒜", "～"))
    assert key_values(footer(data), path="p") == {
        "org.apache.spark.version": "3.5.0",
        "hoodie_min_record_key": "Z",
        "hoodie_max_record_key": "𝒜",
    }
    assert key_range(footer(data), path="p") == KeyRange(smallest="Z", largest="𝒜")


def test_without_key_values_the_range_is_taken_from_the_statistics_of_all_row_groups() -> None:
    sink = io.BytesIO()
    table = pa.concat_tables([rows("b", "c"), rows("é", "a")])
    pq.write_table(table, sink, row_group_size=2)
    assert key_range(footer(sink.getvalue()), path="p") == KeyRange(smallest="a", largest="é")


def test_without_statistics_or_without_the_column_the_range_is_unknown() -> None:
    for table, arguments in (
        (rows("a"), {"write_statistics": False}),
        (rows("a").drop_columns([RECORD_KEY]), {}),
    ):
        sink = io.BytesIO()
        pq.write_table(table, sink, **arguments)
        assert key_range(footer(sink.getvalue()), path="p") is None


def test_a_file_without_rows_has_no_range_and_is_whole() -> None:
    data = written()
    assert key_range(footer(data), path="p") is None
    assert read_columns(open_file(io.BytesIO(data), path="p"), None, path="p").schema.names == SCHEMA.names


def test_a_range_covers_by_bytes_as_hudi_compares() -> None:
    keys = KeyRange(smallest="B", largest="é")
    assert [key for key in ("A", "B", "a", "é", "éa", "𝒜") if keys.covers(key)] == ["B", "a", "é"]
    ends = "ABbé𝒜"
    for low, high in itertools.combinations_with_replacement(ends, 2):
        both = any(keys.covers(key) for key in ends if low.encode() <= key.encode() <= high.encode())
        assert keys.meets(KeyRange(smallest=low, largest=high)) == both
    assert keys.union(KeyRange(smallest="A", largest="z")) == KeyRange(smallest="A", largest="é")


def test_a_bloom_filter_is_written_on_demand_and_read_back() -> None:
    builder = BloomBuilder(entries=100, error_rate=0.01)
    found = bloom_filter(footer(written(rows("a", "b"), rows("c"), bloom=builder)), path="p")
    assert found is not None
    assert found == builder.finish()
    assert found.might_contain(pa.array(["a", "b", "c"])).true_count == 3
    assert bloom_filter(footer(written(rows("a"))), path="p") is None


def test_the_settings_are_those_of_the_file() -> None:
    data = written(rows("a", "b", "c"), settings=WriteSettings(compression="zstd", row_group_rows=2))
    metadata = footer(data)
    assert metadata.num_row_groups == 2
    assert metadata.row_group(0).column(0).compression == "ZSTD"
    assert footer(written(rows("a"))).row_group(0).column(0).compression == "GZIP"


def test_every_spark_type_is_stored_as_hudi_stores_it(reference: Any, hudi_tables: Path) -> None:
    """Leaf by leaf against the file of Hudi's row writer, which has three-level lists as we have."""
    theirs = pq.ParquetFile(next(data_files(hudi_tables / "cow_all_types_bulk")))
    table = TableSchema.of_arrow(theirs.schema_arrow, "cow_all_types_bulk")
    sink = io.BytesIO()
    with BaseFileWriter(sink, table.file_schema) as writer:
        writer.write(theirs.read().cast(table.file_schema))
    ours = pq.ParquetFile(io.BytesIO(sink.getvalue()))

    def leaves(file: pq.ParquetFile) -> list[tuple[str, str, str, int]]:
        columns = [file.schema.column(i) for i in range(len(file.schema))]
        return [(c.path, c.physical_type, str(c.logical_type), c.length) for c in columns]

    assert leaves(ours) == leaves(theirs)
    assert ours.read().equals(theirs.read().cast(table.file_schema))
    seen = {
        f["type"] for c in reference("hudi-evolution.json") for f in c["table"] if isinstance(f["type"], str)
    }
    assert {"date", "timestamp", "timestamp_ntz", "binary"} <= seen
    assert arrow_schema_of([{"name": "x", "type": "byte", "nullable": True}]).types == [pa.int8()]


def test_rows_of_another_schema_or_without_a_key_are_our_bug() -> None:
    with pytest.raises(InternalError, match="for a file of"):
        written(rows("a").drop_columns(["n"]))
    with pytest.raises(InternalError, match="without a record key"):
        written(rows("a").set_column(2, SCHEMA.field(2), pa.array([None], pa.string())))


def test_a_write_that_fails_leaves_no_file_that_reads_as_whole() -> None:
    sink = io.BytesIO()
    with pytest.raises(RuntimeError), BaseFileWriter(sink, SCHEMA) as writer:
        writer.write(rows("a"))
        raise RuntimeError
    with pytest.raises(CorruptTableError, match=r"^p: expected a whole Parquet file"):
        open_file(io.BytesIO(sink.getvalue()), path="p")


@settings(max_examples=60)
@given(st.data())
def test_a_torn_or_damaged_base_file_is_named(data: st.DataObject) -> None:
    good = written(rows("a", "b"))
    cut = data.draw(st.integers(0, len(good) - 1))
    with pytest.raises(CorruptTableError) as caught:
        open_file(io.BytesIO(good[:cut]), path="some/file")
    assert caught.value.path == "some/file"
    damaged = bytearray(good)
    damaged[data.draw(st.integers(0, len(good) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        file = open_file(io.BytesIO(bytes(damaged)), path="some/file")
        key_range(file.metadata, path="some/file")
        bloom_filter(file.metadata, path="some/file")
        read_columns(file, None, path="some/file")
    except CorruptTableError as error:
        assert error.path == "some/file"


@settings(max_examples=200)
@given(st.data())
def test_who_looks_for_keys_in_a_damaged_base_file_is_told_its_name(data: st.DataObject) -> None:
    damaged = bytearray(written(rows("a", "ä", "b")))
    damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= data.draw(st.integers(1, 255))
    hashes = KeyHashes(hashes_of(["a", "ä", "b"]))
    try:
        assert 0 <= hashes.count_in(io.BytesIO(bytes(damaged)), path="some/file", instant="x") <= 3
    except CorruptTableError as error:
        assert error.path == "some/file"


class FailingDisk(io.BytesIO):
    def read(self, size: int | None = -1, /) -> bytes:
        raise OSError(errno.EIO, "the disk is gone")


def test_a_failing_disk_is_not_a_torn_file() -> None:
    with pytest.raises(OSError, match="the disk is gone") as caught:
        open_file(FailingDisk(written(rows("a"))), path="p")
    assert caught.value.errno == errno.EIO


def test_executors_read_and_write_base_files_without_fastavro_numpy_and_pyspark() -> None:
    script = """
import sys
for name in ("fastavro", "numpy", "pandas", "pyspark"):
    sys.modules[name] = None
import io
import itertools
import pyarrow as pa
from sparkrobust.core import write_status
from sparkrobust.formats import bloom, conform, parquet, partition_metadata, properties, reconcile, schema
builder = bloom.BloomBuilder()
keys = [f"key-{i}" for i in range(1500)]
columns = schema.with_meta_columns(pa.schema([("n", pa.int32())]))
numbers = pa.array(range(1500), pa.int32())
table = pa.table({name: keys for name in columns.names[:5]} | {"n": numbers}, schema=columns)
sink = io.BytesIO()
with parquet.BaseFileWriter(sink, columns, bloom=builder) as writer:
    writer.write(table)
file = parquet.open_file(io.BytesIO(sink.getvalue()), path="p")
assert parquet.bloom_filter(file.metadata, path="p").might_contain(table.column(2)).true_count == 1500
print(parquet.key_range(file.metadata, path="p"))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "key-0" in done.stdout
