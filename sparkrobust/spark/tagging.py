"""Step 3 of a write: which of the table's files hold the incoming keys (index SIMPLE).

With few keys, which is the common case, the driver has them; the key column of each base file of
their partitions that may hold some is read and looked up, in threads of the driver or, when that is
much to read, in tasks.  With many, the files' keys become a DataFrame and Spark joins.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sparkrobust.core.markers import Fingerprint
from sparkrobust.core.view import BaseFile
from sparkrobust.errors import InvalidKeyError
from sparkrobust.formats.parquet import key_range_of
from sparkrobust.handles.base_file import matching_keys, may_hold
from sparkrobust.handles.packing import pack
from sparkrobust.handles.plan import FINGERPRINT, KEY, PATH
from sparkrobust.handles.rows import check_keys
from sparkrobust.spark.frames import numbers
from sparkrobust.spark.tasks import (
    BAD_ORDERING,
    CHUNK,
    FILE,
    ProbeFiles,
    ReadKeys,
    unpack_positions,
)
from sparkrobust.storage.contract import Storage

_DRIVER_BYTES = 1 << 30
_DRIVER_THREADS = 8
_READ_TASKS = 256
_PROBE_FILES = 16
"""Files that one task looks into."""


@dataclass(frozen=True, kw_only=True)
class KeyGroup:
    """The distinct incoming keys of one partition, and how many rows have each."""

    partition: str
    keys: pa.Array
    counts: pa.Array
    fingerprints: pa.Array
    """By key, summed over its rows."""

    def fingerprint(self, positions: pa.Array) -> Fingerprint:
        """Of the rows that have the keys at these positions."""
        rows = pc.sum(self.counts.take(positions)).as_py() or 0
        return Fingerprint(rows=rows, keys=pc.sum(self.fingerprints.take(positions)).as_py() or 0)


def check(keys: pa.Table) -> None:
    """Nothing is wrong with these rows."""
    check_keys(keys)
    refuse_bad_ordering(pc.sum(keys[BAD_ORDERING]).as_py() or 0)


def refuse_bad_ordering(rows: int) -> None:
    """Rows without an ordering value can't be compared."""
    if rows:
        raise InvalidKeyError(
            f"{rows} rows have a null in an ordering field",
            hint="fill the field named by hoodie.datasource.write.precombine.field",
        )


def group_keys(keys: pa.Table) -> list[KeyGroup]:
    """The distinct keys by partition."""
    wanted = [([], "count_all"), (FINGERPRINT, "sum")]
    counted = keys.group_by([PATH, KEY], use_threads=False).aggregate(wanted)
    paths = pc.dictionary_encode(counted[PATH].combine_chunks())
    codes = paths.indices if isinstance(paths, pa.DictionaryArray) else paths.combine_chunks().indices
    order = pc.sort_indices(codes)
    ordered = counted.take(order).combine_chunks()
    runs = pc.run_end_encode(ordered[PATH].combine_chunks())
    if isinstance(runs, pa.ChunkedArray):
        runs = runs.combine_chunks()
    found, low = [], 0
    for path, high in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
        piece = ordered.slice(low, high - low).combine_chunks()
        keys_of = pa.concat_arrays(piece[KEY].chunks)
        counts = pa.concat_arrays(piece["count_all"].chunks)
        sums = pa.concat_arrays(piece[f"{FINGERPRINT}_sum"].chunks)
        found.append(KeyGroup(partition=path, keys=keys_of, counts=counts, fingerprints=sums))
        low = high
    return found


def probe(
    spark: SparkSession, storage: Storage, groups: Sequence[KeyGroup], files: Sequence[BaseFile]
) -> dict[int, pa.Array]:
    """For the files that hold some of the keys: the positions of those keys in their group."""
    keys = {group.partition: group.keys for group in groups}
    spans = {group.partition: key_range_of(group.keys) for group in groups}
    possible = [
        index
        for index, base in enumerate(files)
        if (span := spans[base.partition]) is not None and may_hold(storage, base, span)
    ]
    if sum(files[index].size for index in possible) > _DRIVER_BYTES:
        return _probe_in_tasks(spark, storage, groups, files, possible)

    def look(index: int) -> pa.Array:
        return matching_keys(storage, files[index], keys[files[index].partition])

    with ThreadPoolExecutor(_DRIVER_THREADS) as pool:
        found = zip(possible, pool.map(look, possible), strict=True)
        return {index: positions for index, positions in found if len(positions)}


def _probe_in_tasks(
    spark: SparkSession,
    storage: Storage,
    groups: Sequence[KeyGroup],
    files: Sequence[BaseFile],
    possible: Sequence[int],
) -> dict[int, pa.Array]:
    by_partition: dict[str, list[int]] = {}
    for index in possible:
        by_partition.setdefault(files[index].partition, []).append(index)
    shares = [
        (partition, found[low : low + _PROBE_FILES])
        for partition, found in by_partition.items()
        for low in range(0, len(found), _PROBE_FILES)
    ]
    keys = [(group.partition, pack(pa.table({KEY: group.keys}))) for group in groups]
    # The keys of a partition are there once on an executor, and go from there to each of its tasks.
    work = spark.createDataFrame(shares, f"{PATH} string, files array<int>").join(
        F.broadcast(spark.createDataFrame(keys, f"{PATH} string, {CHUNK}")), PATH
    )
    task = ProbeFiles(storage, tuple(files))
    rows = work.select("files", "chunk").mapInArrow(task, ProbeFiles.SCHEMA).collect()
    return {row.file: unpack_positions(row.found) for row in rows if row.found}


def join_with_stored_keys(
    spark: SparkSession, storage: Storage, prepared: DataFrame, files: Sequence[BaseFile]
) -> DataFrame:
    """The incoming rows with the number of the file that holds their key, null where none does."""
    if not files:
        return prepared.withColumn(FILE, F.lit(None).cast("int"))
    stored = numbers(spark, len(files), _READ_TASKS).mapInArrow(
        ReadKeys(storage, tuple(files)), ReadKeys.SCHEMA
    )
    return prepared.join(stored, [PATH, KEY], "left")
