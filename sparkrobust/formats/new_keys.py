"""Which keys a write has put into a base file, looked up among the hashes of others."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sparkrobust.core.key_hashes import SIZE, hashes_of
from sparkrobust.core.names import COMMIT_TIME, RECORD_KEY
from sparkrobust.formats.parquet import open_file, read_pieces

_BATCH_ROWS = 128 * 1024


class KeyHashes:
    """The hashes of some keys."""

    def __init__(self, hashes: bytes) -> None:
        self._known = _array(hashes)

    def count_in(self, source: Any, *, path: str, instant: str) -> int:
        """How many rows of an instant, which a base file has not only carried over, have one of the keys.

        Parameters
        ----------
        source
            The file, open for reading.
        path
            What to call it in an error.
        """
        found = 0
        with open_file(source, path=path) as file:
            for batch in read_pieces(file, [COMMIT_TIME, RECORD_KEY], rows=_BATCH_ROWS, path=path):
                written = pc.equal(batch.column(0).cast(pa.string()), instant)
                keys = batch.column(1).cast(pa.string()).filter(written)
                both = pc.is_in(_array(hashes_of(keys.to_pylist())), value_set=self._known)
                found += pc.sum(both).as_py() or 0
        return found


def _array(hashes: bytes) -> pa.Array:
    return pa.Array.from_buffers(pa.uint64(), len(hashes) // SIZE, [None, pa.py_buffer(hashes)])
