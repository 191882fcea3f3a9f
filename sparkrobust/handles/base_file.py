"""Reading the base files of the table: keys to look up, rows to carry over."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sparkrobust.core.names import RECORD_KEY
from sparkrobust.core.view import BaseFile
from sparkrobust.errors import CorruptTableError
from sparkrobust.formats.conform import conform
from sparkrobust.formats.parquet import KeyRange, key_range, open_file
from sparkrobust.handles.rows import LEADING, file_schema
from sparkrobust.storage.contract import NotFoundError, Storage

_BATCH_ROWS = 128 * 1024


@contextlib.contextmanager
def opened(storage: Storage, base: BaseFile) -> Iterator[pq.ParquetFile]:
    """A base file of the table; one that is gone or torn is named in a ``CorruptTableError``."""
    try:
        with storage.open(base.path) as source:
            # A file on a local disk is read by Arrow itself, without a detour through Python.
            local = getattr(source, "name", None) if isinstance(source, io.BufferedReader) else None
            arrows = pa.memory_map(local) if isinstance(local, str) else source
            with open_file(arrows, path=base.path) as file:
                yield file
    except NotFoundError as error:
        raise CorruptTableError(
            f"the base file {base.path} is gone, though the timeline names its instant",
            path=base.path,
        ) from error
    except (pa.ArrowException, OSError, EOFError) as error:
        raise CorruptTableError(
            f"the base file {base.path} can't be read as parquet: {error}", path=base.path
        ) from error


def matching_keys(storage: Storage, base: BaseFile, keys: pa.Array) -> pa.Array:
    """Which of ``keys`` (distinct) the base file holds: their positions in ``keys``, each once."""
    with opened(storage, base) as file:
        bounds = key_range(file.metadata, path=base.path)
        if bounds is not None and _none_within(keys, bounds):
            return pa.array([], pa.int32())
        held = file.read(columns=[RECORD_KEY], use_threads=False)[RECORD_KEY]
        found = pc.index_in(held.cast(pa.string()), value_set=keys)
        return pc.unique(found.drop_null()).cast(pa.int32())


def _none_within(keys: pa.Array, bounds: KeyRange) -> bool:
    above = pc.greater_equal(keys, bounds.smallest)
    return not pc.any(pc.and_(above, pc.less_equal(keys, bounds.largest))).as_py()


def all_keys(storage: Storage, base: BaseFile) -> Iterator[pa.Array]:
    """The record keys of a base file, a batch at a time."""
    with opened(storage, base) as file:
        for batch in file.iter_batches(batch_size=_BATCH_ROWS, columns=[RECORD_KEY], use_threads=False):
            yield batch.column(0).cast(pa.string())


def rows_of(storage: Storage, base: BaseFile, schema: pa.Schema) -> Iterator[pa.Table]:
    """The rows of a base file in the table's present schema, led by three meta columns."""
    wanted = file_schema(schema)
    with opened(storage, base) as file:
        present = set(file.schema_arrow.names)
        if not present.issuperset(LEADING):
            raise CorruptTableError(f"the base file {base.path} has no meta columns", path=base.path)
        names = [name for name in wanted.names if name in present]
        for batch in file.iter_batches(batch_size=_BATCH_ROWS, columns=names, use_threads=False):
            yield conform(batch, wanted)
