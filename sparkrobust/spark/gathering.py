"""The rows of a write, computed once: packed, and kept until the write is over.

Few rows come to the driver, which then sends each straight to its slot: no shuffle, no join.  Of more
rows the keys may come, and of many nothing does.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sparkrobust.handles.packing import unpack
from sparkrobust.handles.plan import FINGERPRINT, KEY, PATH
from sparkrobust.spark.frames import Frames, collect_arrow
from sparkrobust.spark.prepare import Incoming
from sparkrobust.spark.tasks import BAD_ORDERING, CountRows, PackRows, RepackKeys, UnpackRows

ROWS_CHUNKS = 96
"""More than so many chunks of rows stay in Spark."""
KEYS_CHUNKS = 64
"""More than so many chunks of keys do."""
_CHUNK_BYTES = 512 << 10


class Gathered:
    """The prepared rows of a write."""

    def __init__(self, frames: Frames, incoming: Incoming) -> None:
        self._schema = incoming.whole_schema()
        packed = incoming.frame.mapInArrow(PackRows(incoming.derived, _CHUNK_BYTES), PackRows.SCHEMA)
        self._packed = frames.persist(packed)

    def rows(self) -> pa.Table | None:
        """All rows, or ``None`` if they are too many."""
        # Of few rows this is all; of more, the least that tells how many chunks there are.
        found = collect_arrow(self._packed.where("number = 0 or chunk is null"))
        here = found["chunk"].drop_null()
        count = pc.sum(found["number"]).as_py() or 0
        if count == len(here):
            return _unpacked(here)
        if count > ROWS_CHUNKS:
            return None
        # All of one reading: an input may give other rows when it is read again.
        return _unpacked(collect_arrow(self._packed.where("chunk is not null"))["chunk"])

    def keys(self) -> pa.Table | None:
        """The partition path and the key of every row, and whether something is wrong with its ordering."""
        return _few(self._packed.mapInArrow(RepackKeys(_CHUNK_BYTES), RepackKeys.SCHEMA), KEYS_CHUNKS)

    def counts(self) -> DataFrame:
        """How many rows each partition gets, and how many are wrong, in the columns of ``CountRows``."""
        counted = self._packed.mapInArrow(CountRows(), CountRows.SCHEMA)
        return counted.groupBy(PATH).agg(
            *[F.sum(name).alias(name) for name in ("rows", "keys", "without_key", "bad_ordering")]
        )

    def frame(self) -> DataFrame:
        """The rows again, for Spark."""
        return self._packed.mapInArrow(UnpackRows(), self._schema)


def _few(packed: DataFrame, chunks: int) -> pa.Table | None:
    # A limit at the very end of a query would be worked off in several small jobs.
    wanted = packed.limit(chunks + 1).where(F.col("chunk").isNotNull())
    found = collect_arrow(wanted)["chunk"]
    if len(found) > chunks:
        return None
    return _unpacked(found)


def _unpacked(chunks: pa.ChunkedArray) -> pa.Table:
    if not len(chunks):
        names = {PATH: pa.string(), KEY: pa.string(), BAD_ORDERING: pa.bool_(), FINGERPRINT: pa.int64()}
        return pa.table({name: pa.array([], kind) for name, kind in names.items()})
    return pa.concat_tables([unpack(one.as_buffer()) for one in chunks]).combine_chunks()
