"""Base files: writing one with the footer that Hudi looks for, and reading what a footer says.

In the footer's key/values stand the smallest and the largest record key, on demand a bloom filter,
and the mark of a Spark version: without it Spark refuses dates before 1582 and instants before
1900, because it can't tell which calendar they are in.  Hudi's ``parquet.avro.schema`` is left
out: Hudi derives what it needs from the Parquet schema, which here is plain.

Two habits of pyarrow matter.  With ``store_schema=False``, which keeps Arrow's own types out of the
footer, it drops a schema's metadata without a word, so key/values are added to the writer instead.
And it raises ``OSError`` for a torn footer as for a failing disk; the second has an ``errno``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sparkrobust.errors import CorruptTableError, InternalError
from sparkrobust.formats.bloom import FOOTER_KEY, KIND_FOOTER_KEY, BloomBuilder, BloomFilter

MIN_KEY = "hoodie_min_record_key"
MAX_KEY = "hoodie_max_record_key"
SPARK_VERSION_KEY = "org.apache.spark.version"
SPARK_VERSION_MARK = "3.5.0"
"""Any version from 3.0 on says that days and instants are in the proleptic Gregorian calendar."""

RECORD_KEY = "_hoodie_record_key"
_PIECE_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class KeyRange:
    """The smallest and the largest record key of a file, in the order of UTF-8 bytes, both inclusive."""

    smallest: str
    largest: str

    def covers(self, key: str) -> bool:
        """Whether a file with this range may hold the key."""
        return self.smallest.encode() <= key.encode() <= self.largest.encode()

    def meets(self, other: KeyRange) -> bool:
        """Whether a key may lie in both ranges."""
        return (
            self.smallest.encode() <= other.largest.encode()
            and other.smallest.encode() <= self.largest.encode()
        )

    def union(self, other: KeyRange | None) -> KeyRange:
        """The range of both files' keys."""
        if other is None:
            return self
        return KeyRange(
            smallest=min(self.smallest, other.smallest, key=str.encode),
            largest=max(self.largest, other.largest, key=str.encode),
        )


def key_range_of(keys: pa.Array | pa.ChunkedArray) -> KeyRange | None:
    """The range of a column of keys; ``None`` without any."""
    ends = pc.min_max(keys.cast(pa.binary()))
    if not ends["min"].is_valid:
        return None
    return KeyRange(smallest=ends["min"].as_py().decode(), largest=ends["max"].as_py().decode())


def footer_values(keys: KeyRange | None, bloom: BloomFilter | None = None) -> dict[str, str]:
    """The key/values of a base file with these keys."""
    values = {SPARK_VERSION_KEY: SPARK_VERSION_MARK}
    if keys is not None:
        values |= {MIN_KEY: keys.smallest, MAX_KEY: keys.largest}
    if bloom is not None:
        values |= {FOOTER_KEY: bloom.to_text(), KIND_FOOTER_KEY: bloom.kind.value}
    return values


# -- writing ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class WriteSettings:
    """How base files are written.

    Parameters
    ----------
    compression
        A codec of pyarrow's, in lower case.
    row_group_rows
        Rows of a row group at most, a bound on what a reader holds.
    page_bytes
        Bytes of a page before compression, about.
    dictionary
        Whether columns may be dictionary encoded, or which.
    """

    compression: str = "gzip"
    row_group_rows: int = 1 << 20
    page_bytes: int = 1 << 20
    dictionary: bool | list[str] = True


class BaseFileWriter:
    """Writes one base file to an open sink, and keeps the range of its keys.

    Leaving the ``with`` block by an exception leaves a file without a footer, which no reader takes
    for a whole one.

    Parameters
    ----------
    sink
        A binary file that is open for writing; it is not closed.
    schema
        The file's columns; batches must have exactly these.
    bloom
        Collects the keys for a filter in the footer.
    """

    def __init__(
        self,
        sink: Any,
        schema: pa.Schema,
        settings: WriteSettings | None = None,
        bloom: BloomBuilder | None = None,
    ) -> None:
        settings = settings or WriteSettings()
        self._schema = schema.remove_metadata()
        self._rows_per_group = settings.row_group_rows
        self._bloom = bloom
        self._has_keys = RECORD_KEY in schema.names
        self._closed = False
        self.rows = 0
        self.keys: KeyRange | None = None
        self._writer = pq.ParquetWriter(
            sink,
            self._schema,
            compression=settings.compression,
            use_dictionary=settings.dictionary,
            data_page_size=settings.page_bytes,
            version="2.6",
            store_schema=False,
        )

    def write(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Append rows; a row group is closed at the end of each call, so call with enough of them."""
        table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
        if not table.schema.equals(self._schema, check_metadata=False):
            raise InternalError(f"rows of {table.schema} for a file of {self._schema}")
        if not table.num_rows:
            return
        if self._has_keys:
            keys = table.column(RECORD_KEY)
            if keys.null_count:
                raise InternalError("a row without a record key")
            found = key_range_of(keys)
            self.keys = found.union(self.keys) if found else self.keys
            if self._bloom is not None:
                self._bloom.add(keys)
        self._writer.write_table(table, row_group_size=self._rows_per_group)
        self.rows += table.num_rows

    def close(self) -> None:
        """Write the footer."""
        if self._closed:
            return
        self._closed = True
        bloom = self._bloom.finish() if self._bloom is not None and self._has_keys else None
        self._writer.add_key_value_metadata(footer_values(self.keys, bloom))
        self._writer.close()

    def abandon(self) -> None:
        """Give the file up: no footer is written, now or when the writer is collected."""
        self._closed = True
        self._writer.is_open = False

    def __enter__(self) -> BaseFileWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()


# -- reading ---------------------------------------------------------------------------------------------


def open_file(
    source: Any, *, path: str, metadata: pq.FileMetaData | None = None, in_pieces: bool = False
) -> pq.ParquetFile:
    """Open a base file; a torn one raises :class:`CorruptTableError` with its path.

    Parameters
    ----------
    source
        A binary file that is open for reading, or a buffer.
    path
        What to call the file in an error.
    metadata
        Its footer, if it was read before.
    in_pieces
        What is read of it is never held as a whole, not even a column of one row group.
    """
    ahead = {"pre_buffer": False, "buffer_size": _PIECE_BYTES} if in_pieces else {"pre_buffer": True}
    try:
        return pq.ParquetFile(source, metadata=metadata, **ahead)
    except (pa.ArrowException, OSError, ValueError, EOFError) as error:
        raise _torn(error, path) from error


def read_columns(file: pq.ParquetFile, columns: list[str] | None, *, path: str) -> pa.Table:
    """Columns of a base file; a torn page raises :class:`CorruptTableError` with the path."""
    try:
        return file.read(columns=columns, use_threads=False)
    except (pa.ArrowException, OSError, ValueError, EOFError) as error:
        raise _torn(error, path) from error


def read_pieces(
    file: pq.ParquetFile, columns: list[str], *, rows: int, path: str
) -> Iterator[pa.RecordBatch]:
    """Columns of a file, so many rows at a time; ``CorruptTableError`` for a torn page, a missing column."""
    try:
        missing = set(columns) - set(file.schema_arrow.names)
        if missing:  # Arrow passes over it in silence
            raise ValueError(f"no column {min(missing)}")
        yield from file.iter_batches(rows, columns=columns, use_threads=False)
    except (pa.ArrowException, OSError, ValueError, EOFError) as error:
        raise _torn(error, path) from error


def _torn(error: Exception, path: str) -> Exception:
    if isinstance(error, OSError) and error.errno is not None:
        return error
    return CorruptTableError(f"{path}: expected a whole Parquet file ({str(error)[:200]})", path=path)


def key_values(metadata: pq.FileMetaData, *, path: str) -> dict[str, str]:
    """The footer's own key/values, as text."""
    raw: Mapping[bytes, bytes] = metadata.metadata or {}
    try:
        return {key.decode(): value.decode() for key, value in raw.items()}
    except UnicodeDecodeError as error:
        raise CorruptTableError(f"{path}: expected text in the footer ({error})", path=path) from error


def key_range(metadata: pq.FileMetaData, *, path: str) -> KeyRange | None:
    """The range of record keys, from the key/values, else from the column's statistics; ``None`` if unknown.

    Statistics may be wider than the keys, never narrower.
    """
    values = key_values(metadata, path=path)
    if MIN_KEY in values and MAX_KEY in values:
        return KeyRange(smallest=values[MIN_KEY], largest=values[MAX_KEY])
    names = metadata.schema.to_arrow_schema().names
    if RECORD_KEY not in names:
        return None
    column = next(i for i in range(metadata.num_columns) if metadata.schema.column(i).path == RECORD_KEY)
    found: KeyRange | None = None
    for group in range(metadata.num_row_groups):
        chunk = metadata.row_group(group).column(column)
        statistics = chunk.statistics
        if not chunk.num_values:
            continue
        if statistics is None or not statistics.has_min_max:
            return None
        if not (isinstance(statistics.min, str) and isinstance(statistics.max, str)):
            return None
        found = KeyRange(smallest=statistics.min, largest=statistics.max).union(found)
    return found


def bloom_filter(metadata: pq.FileMetaData, *, path: str) -> BloomFilter | None:
    """The filter of record keys, if the file has one."""
    values = key_values(metadata, path=path)
    if FOOTER_KEY not in values:
        return None
    return BloomFilter.from_text(values[FOOTER_KEY], values.get(KIND_FOOTER_KEY), path=path)
