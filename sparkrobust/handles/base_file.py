"""Reading the base files of the table: keys to look up, rows to carry over."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sparkrobust.core.names import RECORD_KEY
from sparkrobust.core.view import BaseFile
from sparkrobust.errors import CorruptTableError, FileGoneError
from sparkrobust.formats.conform import conform
from sparkrobust.formats.parquet import KeyRange, key_range, open_file
from sparkrobust.handles.rows import LEADING, file_schema
from sparkrobust.remembered import Remembered
from sparkrobust.storage.contract import NotFoundError, Storage

_BATCH_ROWS = 128 * 1024
_MOST_MAPPED = 128 << 20

_ranges: Remembered[tuple[str, str, int], KeyRange] = Remembered(1 << 15)
"""By table, path and size; what is written under a name once never changes."""


@contextlib.contextmanager
def opened(storage: Storage, base: BaseFile) -> Iterator[pq.ParquetFile]:
    """A base file of the table; one that is gone or torn is named in a ``CorruptTableError``."""
    try:
        with storage.open(base.path) as source, open_file(_for_arrow(source), path=base.path) as file:
            yield file
    except NotFoundError as error:
        raise FileGoneError(
            f"the base file {base.path} is gone, though the timeline names its instant",
            path=base.path,
        ) from error
    except (pa.ArrowException, OSError, EOFError) as error:
        raise CorruptTableError(
            f"the base file {base.path} can't be read as parquet: {error}", path=base.path
        ) from error


def _for_arrow(source: io.IOBase) -> object:
    """A file on a local disk is read by Arrow itself, without a detour through Python."""
    local = getattr(source, "name", None) if isinstance(source, io.BufferedReader) else None
    if not isinstance(local, str):
        return source
    # Mapped pages are the system's, but those who watch a worker's memory count them.
    return pa.memory_map(local) if os.path.getsize(local) <= _MOST_MAPPED else pa.OSFile(local)


def _batches(file: pq.ParquetFile, columns: list[str]) -> Iterator[pa.RecordBatch]:
    """Row group by row group, as what is asked for together is read ahead as a whole."""
    for group in range(file.num_row_groups):
        yield from file.iter_batches(_BATCH_ROWS, row_groups=[group], columns=columns, use_threads=False)


def matching_keys(storage: Storage, base: BaseFile, keys: pa.Array) -> pa.Array:
    """Which of ``keys`` (distinct) the base file holds: their positions in ``keys``, each once."""
    with opened(storage, base) as file:
        bounds = key_range(file.metadata, path=base.path)
        if bounds is not None:
            _ranges.keep(_place(storage, base), bounds)
            if _none_within(keys, bounds):
                return pa.array([], pa.int32())
        held = file.read(columns=[RECORD_KEY], use_threads=False)[RECORD_KEY]
        found = pc.index_in(held.cast(pa.string()), value_set=keys)
        return pc.unique(found.drop_null()).cast(pa.int32())


def may_hold(storage: Storage, base: BaseFile, keys: KeyRange) -> bool:
    """Whether the base file has to be opened to see that it holds none of the keys in a range."""
    known = _ranges.get(_place(storage, base))
    return known is None or known.meets(keys)


def _place(storage: Storage, base: BaseFile) -> tuple[str, str, int]:
    return storage.url, base.path, base.size


def _none_within(keys: pa.Array, bounds: KeyRange) -> bool:
    above = pc.greater_equal(keys, bounds.smallest)
    return not pc.any(pc.and_(above, pc.less_equal(keys, bounds.largest))).as_py()


def all_keys(storage: Storage, base: BaseFile) -> Iterator[pa.Array]:
    """The record keys of a base file, a batch at a time."""
    with opened(storage, base) as file:
        for batch in _batches(file, [RECORD_KEY]):
            yield batch.column(0).cast(pa.string())


def rows_of(storage: Storage, base: BaseFile, schema: pa.Schema) -> Iterator[pa.Table]:
    """The rows of a base file in the table's present schema, led by three meta columns."""
    wanted = file_schema(schema)
    with opened(storage, base) as file:
        present = set(file.schema_arrow.names)
        if not present.issuperset(LEADING):
            raise CorruptTableError(f"the base file {base.path} has no meta columns", path=base.path)
        names = [name for name in wanted.names if name in present]
        for batch in _batches(file, names):
            yield conform(batch, wanted)
