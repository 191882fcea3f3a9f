"""Steps 2 to 4 of a write: dedupe, tag, partition; every row finds the slot that it goes to.

Rows of one key meet in one slot, so the handle can dedupe what it gets, and no shuffle is spent on
that alone.  Everything that is wrong with the rows is found here, before the write is on the
timeline.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sparkrobust.core.instant import Instant
from sparkrobust.core.view import BaseFile
from sparkrobust.errors import ConflictError, InvalidInputError, InvalidKeyError
from sparkrobust.handles.plan import KEY, PATH, SLOT, TARGET
from sparkrobust.handles.rows import check_path
from sparkrobust.options import DuplicatePolicy, Operation
from sparkrobust.spark import tagging
from sparkrobust.spark.frames import Frames, as_frame
from sparkrobust.spark.intent import Intent
from sparkrobust.spark.slots import (
    HASH_SPACE,
    NO_FILE,
    Share,
    SlotBook,
    hash_ranges,
    share_table,
    targets_of,
)
from sparkrobust.spark.steps import Steps
from sparkrobust.spark.tasks import BAD_ORDERING, FILE

_HASH, _LOW, _HIGH = "__sr_hash", "__sr_low", "__sr_high"
_WAY_PATH, _WAY_FILE = "__sr_way_path", "__sr_way_file"

_FEW_ROWS = 10_000
"""So few rows need no shuffle to come to one task."""


@dataclass(frozen=True, kw_only=True)
class Routed:
    """The rows on their way to their slots, and the slots."""

    frame: DataFrame
    book: SlotBook


class Router:
    """Routes the rows of one write."""

    def __init__(self, intent: Intent, frames: Frames, steps: Steps) -> None:
        self._intent, self._frames, self._steps = intent, frames, steps
        self._table, self._options, self._spark = intent.table, intent.options, frames.spark
        self._persist = frames.persist

    def route(self, rows: DataFrame) -> Routed:
        """Find the slot of every row.

        Rows of one key meet in one slot, so the handle dedupes (step 2) what it gets.
        """
        frame = self._persist(rows)
        book = SlotBook(self._intent.size_limits(), self._table.ids.uuid)
        if self._intent.looks_up:
            with self._steps.taking("tag"):
                keys = tagging.collect_keys(frame, tagging.DRIVER_KEYS)
                if keys is not None:
                    return self._route_by_key(frame, book, keys)
        with self._steps.taking("tag"):
            counts = self._count(frame)
            files = self._table.base_files(counts)
            if self._intent.looks_up:
                frame = tagging.join_with_stored_keys(self._spark, self._table.storage, frame, files)
                frame = self._persist(frame)
        with self._steps.taking("partition"):
            return self._route_by_hash(frame, book, files, counts)

    def _count(self, frame: DataFrame) -> dict[str, int]:
        """The rows of each partition; keys, ordering values and paths are checked on the way."""
        missing = F.col(KEY).isNull() | (F.col(KEY) == "")
        rows = (
            frame.groupBy(PATH)
            .agg(
                F.count(F.lit(1)).alias("rows"),
                F.count(F.when(missing, 1)).alias("missing"),
                F.count(F.when(F.col(BAD_ORDERING), 1)).alias("bad"),
            )
            .collect()
        )
        without_key = sum(row.missing for row in rows)
        if without_key:
            raise InvalidKeyError(f"{without_key} rows have a record key that is null or empty")
        tagging.refuse_bad_ordering(sum(row.bad for row in rows))
        counts = {row[PATH]: row["rows"] for row in rows}
        for path in counts:
            check_path(path)
        return counts

    def _route_by_key(self, frame: DataFrame, book: SlotBook, keys: pa.Table) -> Routed:
        """The driver knows every key: it assigns each to its slot."""
        groups = tagging.group_keys(keys) if keys.num_rows else []
        for group in groups:
            check_path(group.partition)
        files = self._table.base_files([group.partition for group in groups])
        found = tagging.probe(self._spark, self._table.storage, groups, files)
        if found:
            self._refuse_duplicates()
        by_partition: dict[str, list[tuple[BaseFile, pa.Array]]] = {}
        for index, positions in found.items():
            by_partition.setdefault(files[index].partition, []).append((files[index], positions))
        fillable = self._fillable(files)
        pieces: list[tuple[str, pa.Array, int]] = []
        for group in groups:
            held, small = by_partition.get(group.partition, []), fillable.get(group.partition, [])
            for keys_of_slot, slot in self._assign(book, group, held, small):
                pieces.append((group.partition, keys_of_slot, slot))
        with self._steps.taking("partition"):
            return Routed(frame=self._join_slots(frame, book, pieces, keys.num_rows), book=book)

    def _assign(
        self,
        book: SlotBook,
        group: tagging.KeyGroup,
        held: list[tuple[BaseFile, pa.Array]],
        fillable: Sequence[BaseFile],
    ) -> Iterator[tuple[pa.Array, int]]:
        drops = self._options.operation is Operation.INSERT
        for base, positions in held if not drops else []:
            self._refuse_pending_service(base)
            rows = pc.sum(group.counts.take(positions)).as_py()
            yield group.keys.take(positions), book.for_file(base, rows)
        if self._options.operation is Operation.DELETE:
            return
        known = pc.unique(pa.concat_arrays([positions for _, positions in held])) if held else None
        new = group.keys
        if known is not None:
            new = new.filter(pc.invert(pc.is_in(new, value_set=new.take(known))))
        low = 0
        for slot, rows in book.for_inserts(group.partition, len(new), fillable):
            yield new.slice(low, rows), slot
            low += rows

    @cached_property
    def _services(self) -> dict[str, Instant]:
        """The file groups that a pending service is about to replace."""
        return self._table.file_ids_in_services()

    def _fillable(self, files: Sequence[BaseFile]) -> dict[str, list[BaseFile]]:
        """By partition, the files that may take new rows: those that no pending service will replace."""
        found: dict[str, list[BaseFile]] = {}
        for base in files:
            if base.file_id not in self._services:
                found.setdefault(base.partition, []).append(base)
        return found

    def _refuse_pending_service(self, base: BaseFile) -> None:
        service = self._services.get(base.file_id)
        if service is not None:
            raise ConflictError(
                f"the pending {service} is to replace the file group {base.file_id} of "
                f"{base.partition or 'the table'}, which has rows of this write",
                instant=service.time,
                path=base.path,
                outcome="Conflicted",
                hint="run the clustering with Hudi, or roll it back, and write again",
            )

    def _refuse_duplicates(self) -> None:
        """The table holds some of the incoming keys: an insert may be told to fail then."""
        options = self._options
        if options.operation is Operation.INSERT and options.duplicate_policy is DuplicatePolicy.FAIL:
            raise InvalidInputError(
                "some of the rows have a key that the table holds already",
                hint="hoodie.datasource.insert.dup.policy=fail asked for this; drop keeps the old rows",
            )

    def _join_slots(
        self, frame: DataFrame, book: SlotBook, pieces: list[tuple[str, pa.Array, int]], rows: int
    ) -> DataFrame:
        if len(pieces) == 1 and self._all_go_in(pieces[0], rows):
            return self._to_tasks(frame.withColumn(SLOT, F.lit(pieces[0][2])), book, rows)
        goals = targets_of(book.tasks())
        counts = [len(keys) for _, keys, _ in pieces]
        ways = pa.table(
            {
                PATH: _repeated([path for path, _, _ in pieces], counts, pa.string()),
                KEY: pa.chunked_array([keys for _, keys, _ in pieces], pa.string()),
                SLOT: _repeated([slot for _, _, slot in pieces], counts, pa.int32()),
                TARGET: _repeated([goals[slot] for _, _, slot in pieces], counts, pa.int32()),
            }
        ).combine_chunks()
        routed = frame.join(F.broadcast(as_frame(self._spark, ways)), [PATH, KEY])
        return self._to_tasks(routed, book, rows)

    def _all_go_in(self, piece: tuple[str, pa.Array, int], rows: int) -> bool:
        """One slot takes every row: nothing to look up."""
        return len(piece[1]) == rows

    def _route_by_hash(
        self, frame: DataFrame, book: SlotBook, files: list[BaseFile], counts: dict[str, int]
    ) -> Routed:
        """Spark knows the keys: a row goes by its file, or by the hash of its key."""
        if not counts:
            return Routed(frame=frame, book=book)
        shares: list[Share] = []
        inserts = dict(counts)
        if self._intent.looks_up:
            inserts = dict.fromkeys(counts, 0)
            for row in frame.groupBy(PATH, FILE).agg(F.count(F.lit(1)).alias("rows")).collect():
                if row[FILE] is None:
                    inserts[row[PATH]] = row["rows"]
                    continue
                self._refuse_duplicates()
                if self._options.operation is not Operation.INSERT:
                    self._refuse_pending_service(files[row[FILE]])
                    slot = book.for_file(files[row[FILE]], row["rows"])
                    shares.append(Share(partition=row[PATH], file=row[FILE], slot=slot))
        if self._options.operation is not Operation.DELETE:
            fillable = self._fillable(files)
            for path, count in sorted(inserts.items()):
                places = book.for_inserts(path, count, fillable.get(path, [])) if count else []
                shares += hash_ranges(places, path)
        return Routed(frame=self._join_shares(frame, book, shares, sum(counts.values())), book=book)

    def _join_shares(self, frame: DataFrame, book: SlotBook, shares: list[Share], rows: int) -> DataFrame:
        if len(shares) == 1 and not self._intent.looks_up:
            return self._to_tasks(frame.withColumn(SLOT, F.lit(shares[0].slot)), book, rows)
        names = (PATH, FILE, _LOW, _HIGH, SLOT, TARGET)
        ways = as_frame(self._spark, share_table(shares, book.tasks(), names))
        file = F.coalesce(F.col(FILE), F.lit(NO_FILE)) if self._intent.looks_up else F.lit(NO_FILE)
        hashed = frame.withColumn(FILE, file).withColumn(_HASH, F.pmod(F.xxhash64(KEY), F.lit(HASH_SPACE)))
        way = F.broadcast(ways.withColumnsRenamed({PATH: _WAY_PATH, FILE: _WAY_FILE}))
        found = (
            (hashed[PATH] == way[_WAY_PATH])
            & (hashed[FILE] == way[_WAY_FILE])
            & (hashed[_HASH] >= way[_LOW])
            & (hashed[_HASH] < way[_HIGH])
        )
        routed = hashed.join(way, found).drop(_WAY_PATH, _WAY_FILE, _LOW, _HIGH, _HASH, FILE)
        return self._to_tasks(routed, book, rows)

    def _to_tasks(self, frame: DataFrame, book: SlotBook, rows: int) -> DataFrame:
        """Bring the rows of each slot to its task.

        The number of partitions is given, so adaptive execution leaves it alone.
        """
        tasks = max(book.tasks(), default=0) + 1
        frame = frame.drop(BAD_ORDERING)
        if tasks > 1:
            return frame.repartition(tasks, F.col(TARGET)).drop(TARGET)
        frame = frame.drop(TARGET)
        return frame.coalesce(1) if rows <= _FEW_ROWS else frame.repartition(1)


def _repeated(values: Sequence[object], counts: Sequence[int], kind: pa.DataType) -> pa.ChunkedArray:
    chunks = [pa.repeat(pa.scalar(value, kind), count) for value, count in zip(values, counts, strict=True)]
    return pa.chunked_array(chunks, kind)
