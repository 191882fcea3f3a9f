"""The eight steps of a write (RFC-79): read, dedupe, tag, partition, write, reconcile, prepare, complete.

What is wrong with the input is found before the first trace of the write is on the timeline, where
a pass over the rows precedes the write: in all operations but bulk insert, which reads its rows
once, finds it in its tasks, and is rolled back.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sparkrobust import __version__, errors
from sparkrobust.coordinator.sizing import record_bytes
from sparkrobust.coordinator.table import HudiTable
from sparkrobust.coordinator.transaction import VERSION, Transaction
from sparkrobust.core.file_ids import SizeLimits
from sparkrobust.core.instant import Action
from sparkrobust.core.outcome import WriteResult
from sparkrobust.core.view import BaseFile
from sparkrobust.core.write_status import NEW_FILE_GROUP, OperationType, WriteStat
from sparkrobust.errors import ConflictError, IndeterminateInputError, InvalidInputError
from sparkrobust.formats.commit_metadata import CommitMetadata
from sparkrobust.formats.plans import empty_replace_request
from sparkrobust.handles.plan import (
    KEY,
    PATH,
    SLOT,
    TARGET,
    FileOptions,
    Rules,
    SlotResult,
    WritePlan,
    WrittenFile,
)
from sparkrobust.handles.rows import check_path
from sparkrobust.options import DuplicatePolicy, Operation, SortMode, WriteOptions
from sparkrobust.spark import tagging
from sparkrobust.spark.frames import as_frame
from sparkrobust.spark.interrupts import Interrupts, JobGroup
from sparkrobust.spark.prepare import Incoming, prepare
from sparkrobust.spark.slots import (
    HASH_SPACE,
    NO_FILE,
    Share,
    SlotBook,
    hash_ranges,
    share_table,
    targets_of,
)
from sparkrobust.spark.tasks import BAD_ORDERING, FILE, RunSlots
from sparkrobust.storage import contract

_log = logging.getLogger("sparkrobust")

_HASH, _LOW, _HIGH = "__sr_hash", "__sr_low", "__sr_high"

_FEW_ROWS = 10_000
"""So few rows need no shuffle to come to one task."""


@dataclass
class _Routed:
    """The rows on their way to their slots (step 4), and the slots."""

    frame: DataFrame
    book: SlotBook


@dataclass
class WriteRun:
    """One write of one DataFrame into one table."""

    df: DataFrame
    table: HudiTable
    options: WriteOptions
    jobs: JobGroup
    interrupts: Interrupts
    new_properties: dict[str, str] | None = None
    """The table's properties from now on: all that it holds is replaced by these rows."""
    seconds: dict[str, float] = field(default_factory=dict)
    _persisted: list[DataFrame] = field(default_factory=list)

    def run(self) -> WriteResult:
        """All steps; on any failure the write is rolled back, and the table is as it was."""
        transaction: Transaction | None = None
        try:
            with self._step("read"):
                incoming = prepare(
                    self.df, self.table, self.options, replacing=self.replacing, profiled=not self._bulk
                )
                self._limits = self._size_limits()
                old = self.table.base_files() if self.replacing else []
            routed = None if self._bulk else self._route(incoming)
            transaction = Transaction(self.table, Action.REPLACE_COMMIT if self.replacing else Action.COMMIT)
            with self._step("write"):
                transaction.begin(self._requested(), b"" if routed is None else self._workload(routed.book))
                files = self._write(transaction, incoming, routed)
            return self._commit(transaction, incoming, files, old)
        except errors.CommitUnknownError:
            raise  # it may be durable: nothing of it may be undone
        except BaseException:
            with self.interrupts.undisturbed():
                self.jobs.cancel()
                if transaction is not None:
                    transaction.abort()
            raise
        finally:
            for frame in self._persisted:
                frame.unpersist()

    @contextmanager
    def _step(self, name: str) -> Iterator[None]:
        started = self.table.clock.elapsed()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + self.table.clock.elapsed() - started

    @property
    def replacing(self) -> bool:
        return self.new_properties is not None

    # -- what the operation means --------------------------------------------------------------------

    @property
    def _bulk(self) -> bool:
        return self.options.operation is Operation.BULK_INSERT and not self.options.combine_before_insert

    @property
    def _looks_up(self) -> bool:
        """Whether the incoming keys are looked up in the table."""
        if self.replacing or self.options.operation is Operation.BULK_INSERT:
            return False
        return self.options.operation is not Operation.INSERT or self._duplicates is not DuplicatePolicy.NONE

    @property
    def _duplicates(self) -> DuplicatePolicy:
        return self.options.duplicate_policy

    def _rules(self) -> Rules:
        options, operation = self.options, self.options.operation
        if operation is Operation.DELETE:
            return Rules(combine=False, match=True, delete=True)
        ordering = self.table.config.ordering_fields if self.table.config.event_time else ()
        if operation is Operation.UPSERT:
            return Rules(combine=options.combine_before_upsert, match=True, delete=False, ordering=ordering)
        return Rules(
            combine=options.combine_before_insert,
            match=operation is Operation.INSERT and not options.merge_allow_duplicate_on_inserts,
            delete=False,
            ordering=ordering,
        )

    def _size_limits(self) -> SizeLimits:
        options = self.options
        fills = not self.replacing and options.operation is not Operation.BULK_INSERT
        return SizeLimits(
            max_file_bytes=options.max_file_size,
            small_file_bytes=options.small_file_limit if fills else 0,
            record_bytes=record_bytes(self.table, options.record_size_estimate),
            records_per_new_file=None if options.insert_auto_split else options.insert_split_size,
        )

    def _file_options(self) -> FileOptions:
        options = self.options
        return FileOptions(
            codec=options.codec.value if options.codec.value != "uncompressed" else "none",
            max_file_bytes=options.max_file_size,
            # Files end at row groups: with four to a file none grows much beyond its size.
            row_group_bytes=max(1 << 14, min(options.block_size, options.max_file_size // 4)),
            page_bytes=options.page_size,
            dictionary=options.dictionary,
        )

    # -- steps 2, 3, 4: dedupe, tag, partition ---------------------------------------------------------

    def _route(self, incoming: Incoming) -> _Routed:
        """Find the slot of every row.

        Rows of one key meet in one slot, so the handle dedupes (step 2) what it gets.
        """
        frame = self._persist(incoming.frame)
        book = SlotBook(self._limits, self.table.ids.uuid)
        if self._looks_up:
            with self._step("tag"):
                keys = tagging.collect_keys(frame, tagging.DRIVER_KEYS)
                if keys is not None:
                    return self._route_by_key(frame, book, keys)
        with self._step("tag"):
            counts = self._count(frame)
            files = self.table.base_files(counts)
            if self._looks_up:
                frame = tagging.join_with_stored_keys(self.df.sparkSession, self.table.storage, frame, files)
                frame = self._persist(frame)
        with self._step("partition"):
            return self._route_by_hash(frame, book, files, counts)

    def _persist(self, frame: DataFrame) -> DataFrame:
        kept = frame.persist()
        self._persisted.append(kept)
        return kept

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
            raise errors.InvalidKeyError(f"{without_key} rows have a record key that is null or empty")
        tagging.refuse_bad_ordering(sum(row.bad for row in rows))
        counts = {row[PATH]: row["rows"] for row in rows}
        for path in counts:
            check_path(path)
        return counts

    def _route_by_key(self, frame: DataFrame, book: SlotBook, keys: pa.Table) -> _Routed:
        """The driver knows every key: it assigns each to its slot."""
        groups = tagging.group_keys(keys) if keys.num_rows else []
        for group in groups:
            check_path(group.partition)
        files = self.table.base_files([group.partition for group in groups])
        found = tagging.probe(self.df.sparkSession, self.table.storage, groups, files)
        self._refuse_duplicates(bool(found))
        by_partition: dict[str, list[tuple[BaseFile, pa.Array]]] = {}
        for index, positions in found.items():
            by_partition.setdefault(files[index].partition, []).append((files[index], positions))
        pieces: list[tuple[str, pa.Array, int]] = []
        for group in groups:
            small = [base for base in files if base.partition == group.partition]
            for keys_of_slot, slot in self._assign(book, group, by_partition.get(group.partition, []), small):
                pieces.append((group.partition, keys_of_slot, slot))
        with self._step("partition"):
            return _Routed(self._join_slots(frame, book, pieces, keys.num_rows), book)

    def _assign(
        self,
        book: SlotBook,
        group: tagging.KeyGroup,
        held: list[tuple[BaseFile, pa.Array]],
        files: Sequence[BaseFile],
    ) -> Iterator[tuple[pa.Array, int]]:
        drops = self.options.operation is Operation.INSERT
        for base, positions in held if not drops else []:
            self._refuse_pending_service(base)
            rows = pc.sum(group.counts.take(positions)).as_py()
            yield group.keys.take(positions), book.for_file(base, rows)
        if self.options.operation is Operation.DELETE:
            return
        known = pc.unique(pa.concat_arrays([positions for _, positions in held])) if held else None
        new = group.keys
        if known is not None:
            new = new.filter(pc.invert(pc.is_in(new, value_set=new.take(known))))
        low = 0
        for slot, rows in book.for_inserts(group.partition, len(new), self._fillable(files)):
            yield new.slice(low, rows), slot
            low += rows

    def _fillable(self, files: Sequence[BaseFile]) -> list[BaseFile]:
        """Files that may take new rows: those that no pending service is about to replace."""
        taken = self.table.file_ids_in_services()
        return [base for base in files if base.file_id not in taken]

    def _refuse_pending_service(self, base: BaseFile) -> None:
        service = self.table.file_ids_in_services().get(base.file_id)
        if service is not None:
            raise ConflictError(
                f"the pending {service} is to replace the file group {base.file_id} of "
                f"{base.partition or 'the table'}, which has rows of this write",
                instant=service.time,
                path=base.path,
                outcome="Conflicted",
                hint="run the clustering with Hudi, or roll it back, and write again",
            )

    def _refuse_duplicates(self, some: bool) -> None:
        if some and self.options.operation is Operation.INSERT and self._duplicates is DuplicatePolicy.FAIL:
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
        routed = frame.join(F.broadcast(as_frame(self.df.sparkSession, ways)), [PATH, KEY])
        return self._to_tasks(routed, book, rows)

    def _all_go_in(self, piece: tuple[str, pa.Array, int], rows: int) -> bool:
        """One slot takes every row: nothing to look up."""
        return len(piece[1]) == rows

    def _route_by_hash(
        self, frame: DataFrame, book: SlotBook, files: list[BaseFile], counts: dict[str, int]
    ) -> _Routed:
        """Spark knows the keys: a row goes by its file, or by the hash of its key."""
        if not counts:
            return _Routed(frame, book)
        shares: list[Share] = []
        inserts = dict(counts)
        if self._looks_up:
            inserts = dict.fromkeys(counts, 0)
            for row in frame.groupBy(PATH, FILE).agg(F.count(F.lit(1)).alias("rows")).collect():
                if row[FILE] is None:
                    inserts[row[PATH]] = row["rows"]
                    continue
                self._refuse_duplicates(True)
                if self.options.operation is not Operation.INSERT:
                    self._refuse_pending_service(files[row[FILE]])
                    slot = book.for_file(files[row[FILE]], row["rows"])
                    shares.append(Share(partition=row[PATH], file=row[FILE], slot=slot))
        if self.options.operation is not Operation.DELETE:
            for path, count in sorted(inserts.items()):
                small = self._fillable([base for base in files if base.partition == path])
                shares += hash_ranges(book.for_inserts(path, count, small), path) if count else []
        return _Routed(self._join_shares(frame, book, shares, sum(counts.values())), book)

    def _join_shares(self, frame: DataFrame, book: SlotBook, shares: list[Share], rows: int) -> DataFrame:
        if len(shares) == 1 and not self._looks_up:
            return self._to_tasks(frame.withColumn(SLOT, F.lit(shares[0].slot)), book, rows)
        names = (PATH, FILE, _LOW, _HIGH, SLOT, TARGET)
        ways = as_frame(self.df.sparkSession, share_table(shares, book.tasks(), names))
        file = F.coalesce(F.col(FILE), F.lit(NO_FILE)) if self._looks_up else F.lit(NO_FILE)
        hashed = frame.withColumn(FILE, file).withColumn(
            _HASH, F.pmod(F.xxhash64(KEY), F.lit(HASH_SPACE))
        )
        way = F.broadcast(ways.withColumnsRenamed({PATH: "__sr_w_path", FILE: "__sr_w_file"}))
        found = (
            (hashed[PATH] == way["__sr_w_path"])
            & (hashed[FILE] == way["__sr_w_file"])
            & (hashed[_HASH] >= way[_LOW])
            & (hashed[_HASH] < way[_HIGH])
        )
        routed = hashed.join(way, found).drop("__sr_w_path", "__sr_w_file", _LOW, _HIGH, _HASH, FILE)
        return self._to_tasks(routed, book, rows)

    def _to_tasks(self, frame: DataFrame, book: SlotBook, rows: int) -> DataFrame:
        """Bring the rows of each slot to its task.

        The number of partitions is given, so adaptive execution leaves it alone.
        """
        tasks = max(book.tasks()) + 1
        frame = frame.drop(BAD_ORDERING)
        if tasks > 1:
            return frame.repartition(tasks, F.col(TARGET)).drop(TARGET)
        frame = frame.drop(TARGET)
        return frame.coalesce(1) if rows <= _FEW_ROWS else frame.repartition(1)

    # -- step 5: write -----------------------------------------------------------------------------------

    def _write(self, transaction: Transaction, incoming: Incoming, routed: _Routed | None) -> list[WrittenFile]:
        plan = WritePlan(
            storage=self.table.storage,
            control=transaction.control,
            schema=incoming.schema.arrow,
            rules=self._rules(),
            files=self._file_options(),
            slots=routed.book.slots() if routed else (),
            tasks=routed.book.tasks() if routed else (),
            seed=self.table.ids.uuid() if routed is None else "",
        )
        if routed is not None and not plan.slots:
            return []
        frame = self._laid_out(incoming.frame) if routed is None else routed.frame
        rows = frame.mapInArrow(RunSlots(plan), RunSlots.SCHEMA).collect()
        return self._reconcile(plan, [SlotResult.from_json(row.result) for row in rows])

    def _laid_out(self, frame: DataFrame) -> DataFrame:
        """A bulk insert's rows in the order that its sort mode asks for."""
        mode, tasks = self.options.sort_mode, self.options.bulk_insert_parallelism
        by_path = (tasks, PATH) if tasks else (PATH,)
        if mode is SortMode.PARTITION_SORT:
            return frame.sortWithinPartitions(PATH, KEY)
        if mode is SortMode.GLOBAL_SORT:
            ranged = frame.repartitionByRange(*((tasks, PATH, KEY) if tasks else (PATH, KEY)))
            return ranged.sortWithinPartitions(PATH, KEY)
        if mode is SortMode.PARTITION_PATH_REPARTITION:
            return frame.repartition(*by_path)
        if mode is SortMode.PARTITION_PATH_REPARTITION_AND_SORT:
            return frame.repartition(*by_path).sortWithinPartitions(PATH, KEY)
        return frame

    # -- step 6: reconcile -------------------------------------------------------------------------------

    def _reconcile(self, plan: WritePlan, results: list[SlotResult]) -> list[WrittenFile]:
        """Exactly one result of every slot, or the write fails."""
        for result in results:
            if result.problem:
                name, message, path = result.problem
                kind = getattr(errors, name, None) or getattr(contract, name)
                raise kind(message, path=path)
        if plan.slots:
            seen = sorted(result.slot for result in results)
            if seen != list(range(len(plan.slots))):
                lost = sorted(set(range(len(plan.slots))) - set(seen))
                raise IndeterminateInputError(
                    f"the rows of {len(lost) or 'some'} file groups did not come the way that was planned for "
                    "them: the input gave other rows when it was read again",
                    hint="write rows that a second reading gives again: cache them, or store them first",
                )
        return [file for result in results for file in result.files]

    # -- steps 7, 8: prepare the commit, complete it ---------------------------------------------------------

    def _commit(
        self,
        transaction: Transaction,
        incoming: Incoming,
        files: list[WrittenFile],
        old: list[BaseFile],
    ) -> WriteResult:
        stats = [file.stat for file in files]
        replaced: dict[str, list[str]] = {}
        for base in old:
            replaced.setdefault(base.partition, []).append(base.file_id)
        with self._step("publish"):
            transaction.publish([file.staged for file in files], stats)
        with self._step("complete"), self.interrupts.undisturbed():
            transaction.complete(
                self._operation_type(),
                stats,
                incoming.schema.to_json(),
                replaced=replaced,
                new_properties=self.new_properties,
                extra={**self.options.commit_metadata, VERSION: __version__},
                may_drop_metadata_table=self.options.drop_metadata_table,
            )
        with self._step("clean up"), self.interrupts.undisturbed():
            self._clean_up(transaction)
        return self._result(transaction, stats)

    @staticmethod
    def _clean_up(transaction: Transaction) -> None:
        """The write is durable: what can't be tidied now is swept by the next one."""
        try:
            transaction.clean_up()
        except errors.RobustWriteError as error:
            _log.warning("committed, but not cleaned up: %s", error)

    def _operation_type(self) -> OperationType:
        if self.replacing:
            return OperationType.INSERT_OVERWRITE_TABLE
        return OperationType[self.options.operation.name]

    def _requested(self) -> bytes:
        return empty_replace_request() if self.replacing else b""

    def _workload(self, book: SlotBook) -> bytes:
        """What the inflight file says is going to be written, in Hudi's form."""
        by_partition: dict[str, list[WriteStat]] = {}
        for slot in book.slots():
            rows, updates = book.rows(slot.index), slot.base is not None
            stat = WriteStat(
                file_id=slot.prefix if updates else "",
                path=None,
                partition_path=None,
                prev_commit=slot.base.name.instant if slot.base else NEW_FILE_GROUP,
                num_inserts=0 if updates else rows,
                num_update_writes=rows if updates else 0,
            )
            by_partition.setdefault(slot.partition, []).append(stat)
        return CommitMetadata(
            partition_to_write_stats={path: tuple(stats) for path, stats in by_partition.items()},
            operation_type=self._operation_type(),
        ).to_bytes()

    def _result(self, transaction: Transaction, stats: list[WriteStat]) -> WriteResult:
        created = sum(1 for stat in stats if stat.prev_commit == NEW_FILE_GROUP)
        return WriteResult(
            path=self.table.storage.url,
            operation=self.options.operation.value,
            instant=transaction.time,
            completion=transaction.completion,
            inserted=sum(stat.num_inserts for stat in stats),
            updated=sum(stat.num_update_writes for stat in stats),
            deleted=sum(stat.num_deletes for stat in stats),
            files_created=created,
            files_rewritten=len(stats) - created,
            partitions=len({stat.partition_path for stat in stats}),
            bytes_written=sum(stat.file_size_in_bytes for stat in stats),
            seconds=dict(self.seconds),
        )


def _repeated(values: Sequence[object], counts: Sequence[int], kind: pa.DataType) -> pa.ChunkedArray:
    chunks = [pa.repeat(pa.scalar(value, kind), count) for value, count in zip(values, counts, strict=True)]
    return pa.chunked_array(chunks, kind)
