"""Steps 2 to 4 of a write: dedupe, tag, partition; every row finds the slot that it goes to.

Rows of one key meet in one slot, so the handle can dedupe what it gets, and no shuffle is spent on
that alone.  Everything that is wrong with the rows is found here, before the write is on the
timeline.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sparkrobust.coordinator.conflicts import SERVICE_CONFLICT
from sparkrobust.core.instant import Instant
from sparkrobust.core.markers import Fingerprint
from sparkrobust.core.view import BaseFile
from sparkrobust.errors import ConflictError, InvalidInputError, UnavailableError
from sparkrobust.handles.packing import pack
from sparkrobust.handles.plan import FINGERPRINT, KEY, PATH, SLOT, TARGET, Attempt, SlotResult, WritePlan
from sparkrobust.handles.rows import bytes_of, check_path, members, refuse_missing_keys, single, split
from sparkrobust.handles.rows import positions as positions_of
from sparkrobust.handles.work import run as run_slots
from sparkrobust.options import DuplicatePolicy, Operation
from sparkrobust.spark import tagging
from sparkrobust.spark.frames import Frames, as_frame, numbers
from sparkrobust.spark.gathering import Gathered
from sparkrobust.spark.intent import Intent
from sparkrobust.spark.prepare import Incoming
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
from sparkrobust.spark.tasks import BAD_ORDERING, FILE, RunPackedSlots, RunSlots, RunSlotsAgain, results_of
from sparkrobust.world import Ids

_HASH, _LOW, _HIGH = "__sr_hash", "__sr_low", "__sr_high"
_WAY_PATH, _WAY_FILE = "__sr_way_path", "__sr_way_file"

_ATTEMPTS_HERE = 4
"""As many as Spark grants a task."""
_PACKING_THREADS = 4
_LEAVING_THREADS = 8
_MOST_IN_A_FUNCTION = 512 << 10
"""Of a function with more than a megabyte PySpark leaves a file on the driver until the application ends."""

_Piece = tuple[str, pa.Array, int]
"""Some keys of a partition, and the slot of their rows."""
Again = Mapping[int, int]
"""Slots as the book has them, and the numbers under which they are done once more."""


class Routed(ABC):
    """The rows on their way to their slots, and the slots."""

    book: SlotBook
    may_change: bool = True
    """Spark may read the rows once more, and get others."""

    @abstractmethod
    def results(self, plan: WritePlan, again: Again | None = None) -> list[SlotResult]:
        """Run the write stage: one result for each slot.

        Parameters
        ----------
        again
            Only these slots, which had their rows before, each under the number of the one in its place.
        """


@dataclass(frozen=True, kw_only=True)
class _InSpark(Routed):
    """Each row comes to its task by a shuffle."""

    frame: DataFrame
    book: SlotBook

    def results(self, plan: WritePlan, again: Again | None = None) -> list[SlotResult]:
        if again is None:
            return results_of(self.frame.mapInArrow(RunSlots(plan), RunSlots.SCHEMA), plan.control)
        # Spark filters before it shuffles; tasks of other slots get nothing, and do nothing.
        some = self.frame.where(F.col(SLOT).isin(*again))
        stage = some.mapInArrow(RunSlotsAgain(plan, again), RunSlotsAgain.SCHEMA)
        return results_of(stage, plan.control)


@dataclass(frozen=True, kw_only=True)
class _ByDriver(Routed):
    """Each task is sent with its rows; what is very little the driver writes itself."""

    may_change = False

    spark: SparkSession
    rows: dict[int, list[pa.Table]]
    """By slot."""
    book: SlotBook
    ids: Ids
    most_here: int
    """Bytes of files that the driver may write itself."""

    def results(self, plan: WritePlan, again: Again | None = None) -> list[SlotResult]:
        by_slot = self.rows
        if again is not None:
            by_slot = {new: _renumbered(self.rows[old], new) for old, new in again.items()}
        by_task: dict[int, list[pa.Table]] = {}
        for slot, tables in sorted(by_slot.items()):
            by_task.setdefault(plan.tasks[slot], []).extend(tables)
        rows = {task: pa.concat_tables(tables) for task, tables in by_task.items()}
        # The book knows the files that are there, and of the rows a guess.
        if self.book.is_small(self.most_here) and sum(map(bytes_of, rows.values())) <= self.most_here:
            return self._written_here(plan, rows)
        with ThreadPoolExecutor(_PACKING_THREADS) as pool:
            packed = dict(zip(rows, pool.map(pack, rows.values()), strict=True))
        if sum(map(len, packed.values())) > _MOST_IN_A_FUNCTION:
            _leave(plan, packed)
            packed = {}
        tasks = numbers(self.spark, len(rows), len(rows), first=min(rows))
        return results_of(tasks.mapInArrow(RunPackedSlots(plan, packed), RunPackedSlots.SCHEMA), plan.control)

    def _written_here(self, plan: WritePlan, rows: Mapping[int, pa.Table]) -> list[SlotResult]:
        def run(task: int, failures: int = 0) -> list[SlotResult]:
            attempt = Attempt.of(task, stage=0, ids=self.ids)
            try:
                return list(run_slots(plan, attempt, iter(rows[task].to_batches())))
            except UnavailableError:
                if failures + 1 == _ATTEMPTS_HERE:
                    raise
                return run(task, failures + 1)

        with ThreadPoolExecutor(len(rows)) as pool:
            return [result for results in pool.map(run, rows) for result in results]


def _renumbered(tables: Sequence[pa.Table], slot: int) -> list[pa.Table]:
    """The rows of a slot, as rows of the one in its place."""
    place = tables[0].schema.get_field_index(SLOT)
    return [
        table.set_column(place, SLOT, pa.repeat(pa.scalar(slot, pa.int32()), table.num_rows))
        for table in tables
    ]


def _leave(plan: WritePlan, packed: Mapping[int, bytes]) -> None:
    """Put each task's rows where it finds them; they go with the control folder."""
    storage, control = plan.storage, plan.control
    storage.make_folder(control.rows_folder)
    with ThreadPoolExecutor(_LEAVING_THREADS) as pool:
        list(pool.map(lambda item: storage.put_if_absent(control.rows(item[0]), item[1]), packed.items()))


class Router:
    """Routes the rows of one write."""

    def __init__(self, intent: Intent, frames: Frames, steps: Steps) -> None:
        self._intent, self._frames, self._steps = intent, frames, steps
        self._table, self._options, self._spark = intent.table, intent.options, frames.spark
        self._persist = frames.persist
        self.found: dict[str, set[str]] = {}
        """Of each partition that was looked at for keys: the file groups that are there."""

    def route(self, incoming: Incoming) -> Routed:
        """Find the slot of every row.

        Rows of one key meet in one slot, so the handle dedupes (step 2) what it gets.
        """
        book = SlotBook(self._intent.size_limits(), self._table.ids.uuid)
        with self._steps.taking("gather"):
            gathered = Gathered(self._frames, incoming)
            here = gathered.rows()
        if here is not None:
            return self._route_here(here, book)
        with self._steps.taking("tag"):
            keys = gathered.keys() if self._intent.looks_up else None
            if keys is not None:
                pieces = self._pieces(book, keys)
                with self._steps.taking("partition"):
                    return self._join_slots(gathered.frame(), book, pieces, keys.num_rows)
            counts = self._count(gathered)
            files = self._files(counts)
            frame = gathered.frame()
            if self._intent.looks_up:
                frame = tagging.join_with_stored_keys(self._spark, self._table.storage, frame, files)
                frame = self._persist(frame)
        with self._steps.taking("partition"):
            return self._route_by_hash(frame, book, files, counts)

    def _files(self, partitions: Iterable[str]) -> list[BaseFile]:
        """The files that lie in these partitions, of which it is remembered that they were found there."""
        wanted = list(partitions)
        files = self._table.base_files(wanted)
        if self._intent.looks_up:
            self.found = {partition: set() for partition in wanted}
            for base in files:
                self.found[base.partition].add(base.file_id)
        return files

    # -- the driver has the rows, or their keys ------------------------------------------------------

    def _route_here(self, rows: pa.Table, book: SlotBook) -> Routed:
        with self._steps.taking("tag"):
            pieces = self._pieces(book, rows.select([PATH, KEY, BAD_ORDERING, FINGERPRINT]))
        with self._steps.taking("partition"):
            # What the driver has can't be other rows at the next reading.
            rows = rows.drop_columns([BAD_ORDERING, FINGERPRINT])
            by_slot: dict[int, list[pa.Table]] = {}
            by_path: dict[str, list[_Piece]] = {}
            for piece in pieces:
                by_path.setdefault(piece[0], []).append(piece)
            for path, table in split(rows, PATH) if rows.num_rows else []:
                for slot, part in _by_slot(table, by_path.get(path, [])):
                    by_slot.setdefault(slot, []).append(part)
        return _ByDriver(
            spark=self._spark,
            rows=by_slot,
            book=book,
            ids=self._table.ids,
            most_here=self._options.driver_bytes,
        )

    def _pieces(self, book: SlotBook, keys: pa.Table) -> list[_Piece]:
        """The slot of every key; of keys that have none the rows are dropped."""
        tagging.check(keys)
        groups = tagging.group_keys(keys) if keys.num_rows else []
        for group in groups:
            check_path(group.partition)
        files = self._files(group.partition for group in groups)
        found = {}
        if self._intent.looks_up:
            found = tagging.probe(self._spark, self._table.storage, groups, files)
        if found:
            self._refuse_duplicates()
        by_partition: dict[str, list[tuple[BaseFile, pa.Array]]] = {}
        for index, positions in found.items():
            by_partition.setdefault(files[index].partition, []).append((files[index], positions))
        fillable = self._fillable(files)
        return [
            (group.partition, keys_of_slot, slot)
            for group in groups
            for keys_of_slot, slot in self._assign(
                book, group, by_partition.get(group.partition, []), fillable.get(group.partition, [])
            )
        ]

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
            expected = group.fingerprint(positions)
            slot = book.for_file(base, expected.rows)
            book.expect([slot], expected)
            yield group.keys.take(positions), slot
        if self._options.operation is Operation.DELETE:
            return
        new = positions_of(len(group.keys))
        if held:
            new = new.filter(
                pc.invert(members(len(group.keys), pa.concat_arrays([found for _, found in held])))
            )
        low = 0
        for slot, keys in book.for_inserts(group.partition, len(new), fillable):
            mine = new.slice(low, keys)
            book.expect([slot], group.fingerprint(mine))
            yield group.keys.take(mine), slot
            low += keys

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
                kind=SERVICE_CONFLICT,
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

    def _join_slots(self, frame: DataFrame, book: SlotBook, pieces: list[_Piece], rows: int) -> Routed:
        if len(pieces) == 1 and len(pieces[0][1]) == rows:  # one slot takes all: nothing to look up
            return self._to_tasks(frame.withColumn(SLOT, F.lit(pieces[0][2])), book)
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
        return self._to_tasks(frame.join(F.broadcast(as_frame(self._spark, ways)), [PATH, KEY]), book)

    # -- Spark has the rows --------------------------------------------------------------------------

    def _count(self, gathered: Gathered) -> dict[str, Fingerprint]:
        """The rows of each partition; keys, ordering values and paths are checked on the way."""
        rows = gathered.counts().collect()
        refuse_missing_keys(sum(row.without_key for row in rows))
        tagging.refuse_bad_ordering(sum(row.bad_ordering for row in rows))
        counts = {row[PATH]: Fingerprint(rows=row["rows"], keys=row["keys"]) for row in rows}
        for path in counts:
            check_path(path)
        return counts

    def _route_by_hash(
        self, frame: DataFrame, book: SlotBook, files: list[BaseFile], counts: dict[str, Fingerprint]
    ) -> Routed:
        """Spark knows the keys: a row goes by its file, or by the hash of its key."""
        if not counts:
            return _InSpark(frame=frame, book=book)
        shares: list[Share] = []
        inserts = dict(counts)
        if self._intent.looks_up:
            inserts = {}
            wanted = [F.count(F.lit(1)).alias("rows"), F.sum(FINGERPRINT).alias("keys")]
            for row in frame.groupBy(PATH, FILE).agg(*wanted).collect():
                found = Fingerprint(rows=row["rows"], keys=row["keys"])
                if row[FILE] is None:
                    inserts[row[PATH]] = found
                    continue
                self._refuse_duplicates()
                if self._options.operation is not Operation.INSERT:
                    self._refuse_pending_service(files[row[FILE]])
                    slot = book.for_file(files[row[FILE]], found.rows)
                    book.expect([slot], found)
                    shares.append(Share(partition=row[PATH], file=row[FILE], slot=slot))
        if self._options.operation is not Operation.DELETE:
            fillable = self._fillable(files)
            for path, new in sorted(inserts.items()):
                places = book.for_inserts(path, new.rows, fillable.get(path, []))
                # Which of them go where is known only by the shares of the hashes.
                book.expect([slot for slot, _ in places], new)
                shares += hash_ranges(places, path)
        return self._join_shares(frame, book, shares)

    def _join_shares(self, frame: DataFrame, book: SlotBook, shares: list[Share]) -> Routed:
        if len(shares) == 1 and not self._intent.looks_up:
            return self._to_tasks(frame.withColumn(SLOT, F.lit(shares[0].slot)), book)
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
        return self._to_tasks(routed, book)

    def _to_tasks(self, frame: DataFrame, book: SlotBook) -> Routed:
        """Bring the rows of each slot to its task.

        The number of partitions is given, so adaptive execution leaves it alone.
        """
        tasks = max(book.tasks(), default=0) + 1
        frame = frame.drop(BAD_ORDERING)
        if tasks > 1:
            frame = frame.repartition(tasks, F.col(TARGET)).drop(TARGET)
        else:
            frame = frame.drop(TARGET).repartition(1)
        return _InSpark(frame=frame, book=book)


def _by_slot(rows: pa.Table, pieces: Sequence[_Piece]) -> Iterator[tuple[int, pa.Table]]:
    """The rows of a partition that go to each slot, with its number."""
    if not pieces:
        return
    known = pa.concat_arrays([keys for _, keys, _ in pieces])
    if len(pc.unique(known)) < len(known):
        # Several files hold one key: its row goes to each of them.
        for _, keys, slot in pieces:
            here = rows.filter(pc.is_in(rows[KEY], value_set=keys))
            yield slot, here.append_column(SLOT, pa.repeat(pa.scalar(slot, pa.int32()), here.num_rows))
        return
    slots = _repeated([slot for _, _, slot in pieces], [len(keys) for _, keys, _ in pieces], pa.int32())
    slot = slots.combine_chunks().take(single(pc.index_in(rows[KEY], value_set=known)))
    yield from split(rows.append_column(SLOT, slot).filter(slot.is_valid()), SLOT)


def _repeated(values: Sequence[object], counts: Sequence[int], kind: pa.DataType) -> pa.ChunkedArray:
    chunks = [pa.repeat(pa.scalar(value, kind), count) for value, count in zip(values, counts, strict=True)]
    return pa.chunked_array(chunks, kind)
