"""The eight steps of a write (RFC-79): read, dedupe, tag, partition, write, reconcile, prepare, complete.

What is wrong with the input is found before the first trace of the write is on the timeline, where
a pass over the rows precedes the write: in all operations but bulk insert, which reads its rows
once, finds it in its tasks, and is rolled back.
"""

from __future__ import annotations

import contextlib
import logging
import platform
from collections.abc import Set
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sparkrobust import __version__, errors
from sparkrobust.coordinator.ending import end
from sparkrobust.coordinator.leftovers import attempts_besides
from sparkrobust.coordinator.planned import overtaken
from sparkrobust.coordinator.recovery import result_of, result_unread
from sparkrobust.coordinator.transaction import Transaction
from sparkrobust.coordinator.write_ids import WrittenEarlier
from sparkrobust.core.conflicts import FileGroup
from sparkrobust.core.instant import Action, InstantTime
from sparkrobust.core.markers import CompletionMarker, Fingerprint, Terms
from sparkrobust.core.names import VERSION, WRITE_ID, WRITER
from sparkrobust.core.outcome import WriteResult, tell_undone
from sparkrobust.core.redo import Reads
from sparkrobust.core.write_status import NEW_FILE_GROUP, WriteStat
from sparkrobust.errors import InternalError
from sparkrobust.formats.commit_metadata import CommitMetadata
from sparkrobust.formats.plans import empty_replace_request
from sparkrobust.handles.plan import FINGERPRINT, KEY, PATH, SlotResult, WritePlan
from sparkrobust.options import OnFinalized, PinInput, SortMode
from sparkrobust.probe import Point, reached
from sparkrobust.spark.determinacy import may_change
from sparkrobust.spark.frames import Frames, numbers
from sparkrobust.spark.intent import Intent
from sparkrobust.spark.interrupts import Interrupts, JobGroup
from sparkrobust.spark.prepare import Incoming, prepare
from sparkrobust.spark.routing import Routed, Router
from sparkrobust.spark.slots import SlotBook
from sparkrobust.spark.steps import Steps
from sparkrobust.spark.tasks import (
    PinRows,
    RunPinnedSlots,
    RunSlots,
    error_named,
    raised_by_a_task,
    results_of,
)

_log = logging.getLogger("sparkrobust")

Expected = list[tuple[frozenset[int], Fingerprint]]
"""Sets of slots, and the rows that each set must get."""


@dataclass(kw_only=True)
class WriteRun:
    """One write of one DataFrame into one table."""

    df: DataFrame
    intent: Intent
    jobs: JobGroup
    interrupts: Interrupts
    new_properties: dict[str, str] | None = None
    """The table's properties from now on, where it is replaced."""

    def run(self) -> WriteResult:
        """All steps; on any failure the write is rolled back, and the table is as it was."""
        intent, frames = self.intent, Frames(self.df.sparkSession)
        self._steps = Steps(intent.table.clock)
        self._answered = set[str]()
        known = intent.table.timeline.completed_times
        transaction: Transaction | None = None
        try:
            with self._steps.taking("read"):
                incoming = prepare(self.df, intent)
                counted = self._counted(incoming)
            router = Router(intent, frames, self._steps)
            routed = None if intent.bulk else router.route(incoming)
            transaction = Transaction(intent.table, self._terms(incoming))
            is_counted = routed.may_change if routed else counted is not None
            with self._steps.taking("write"):
                with self.interrupts.undisturbed():
                    transaction.begin(
                        slots=len(routed.book) if routed else None,
                        counted=is_counted,
                        requested=empty_replace_request() if intent.replacing else b"",
                        inflight=self._workload(routed.book) if routed else b"",
                        found=router.found,
                        waiting=self.interrupts.disturbed,
                    )
                self.interrupts.give_in()
                if intent.options.early_conflicts:
                    transaction.refuse_conflicts_early(_changed(routed))
                expected = routed.book.expected() if routed else []
                plan = self._plan(transaction, incoming, routed, expected)
                results = self._sound(self._write(plan, incoming, routed), transaction)
                if routed is not None:
                    plan, results = self._redone(transaction, routed, plan, results)
            if counted is not None:
                expected = [(frozenset(range(len(results))), counted)]
            return self._commit(transaction, plan, routed, results, expected, counted=is_counted)
        except errors.CommitUnknownError:
            raise  # it may be durable: nothing of it may be undone
        except WrittenEarlier as other:
            assert transaction is not None
            with self.interrupts.undisturbed():
                transaction.abort("another run has committed it")
            return result_of(intent.table, other.write, intent.options.operation.value)
        except BaseException as error:
            with self.interrupts.undisturbed():
                with contextlib.suppress(Exception):  # Spark may be away: the write is undone all the same
                    self.jobs.cancel()
                undone = transaction is None or end(transaction, error)
            self.interrupts.too_late = not undone
            told = self._in_other_words(error, transaction, known) if undone else None
            if told is not None:
                raise told from error
            if undone or not isinstance(error, Exception):
                raise
            assert transaction is not None
            _log.warning("another driver has committed the write, in which this one failed: %s", error)
            return self._result_by_another(transaction)
        finally:
            with self.interrupts.undisturbed():
                if transaction is not None:
                    transaction.leave()
                frames.release()

    def _in_other_words(
        self, error: BaseException, transaction: Transaction | None, known: Set[InstantTime]
    ) -> errors.RobustWriteError | None:
        """What an error of a write that was undone comes to, if that is another one."""
        told = _in_our_words(error, transaction)
        gone = told or error
        if not isinstance(gone, errors.FileGoneError):
            return told
        conflict = overtaken(self.intent.table, known, gone)
        if conflict is not None and transaction is not None:
            tell_undone(conflict, path=self.intent.table.storage.url, instant=transaction.time)
        return conflict or told

    def _result_by_another(self, transaction: Transaction) -> WriteResult:
        """The result of this write, which another driver has committed."""
        table, done = self.intent.table, transaction.done
        assert done is not None
        try:
            operation = self.intent.options.operation.value
            return result_of(table, table.completed(done), operation, earlier=False)
        except Exception as error:
            raise result_unread(table, done.time, error) from error

    def _terms(self, incoming: Incoming) -> Terms:
        intent = self.intent
        return Terms(
            action=Action.REPLACE_COMMIT if intent.replacing else Action.COMMIT,
            operation=intent.operation_type(),
            schema=incoming.schema.to_json(),
            extra={
                **intent.options.commit_metadata,
                VERSION: __version__,
                WRITER: self._writer(),
                **self._write_id(),
            },
            replaces_table=intent.replacing,
            new_properties=self.new_properties,
            may_drop_metadata_table=intent.options.drop_metadata_table,
        )

    def _writer(self) -> str:
        """Who this is, for the messages of others."""
        known = self.df.sparkSession.conf
        return f"{known.get('spark.app.name', '')} ({known.get('spark.app.id', '')}) on {platform.node()}"

    def _write_id(self) -> dict[str, str]:
        name = self.intent.options.write_id
        return {} if name is None else {WRITE_ID: name}

    # -- step 5: write -----------------------------------------------------------------------------------

    def _plan(
        self, transaction: Transaction, incoming: Incoming, routed: Routed | None, expected: Expected
    ) -> WritePlan:
        return WritePlan(
            storage=self.intent.storage_of_tasks(),
            control=transaction.folder,
            schema=incoming.schema.arrow,
            rules=self.intent.rules(),
            files=self.intent.file_options(),
            slots=routed.book.slots() if routed else (),
            tasks=routed.book.tasks() if routed else (),
            expected=_single(expected),
            seed=self.intent.table.ids.uuid() if routed is None else "",
            reuse=self.intent.options.on_finalized is OnFinalized.REUSE,
            key_hashes=self.intent.tells_new_keys,
        )

    def _write(self, plan: WritePlan, incoming: Incoming, routed: Routed | None) -> list[SlotResult]:
        if routed is not None:
            return routed.results(plan) if plan.slots else []
        laid_out = self._laid_out(incoming.frame)
        if self.intent.options.pin_input is PinInput.AUTO and may_change(laid_out):
            stage = self._pinned(plan, incoming, laid_out)
        else:
            stage = laid_out.mapInArrow(RunSlots(plan, incoming.derived), RunSlots.SCHEMA)
        return results_of(stage, plan.control)

    def _redone(
        self, transaction: Transaction, routed: Routed, plan: WritePlan, results: list[SlotResult]
    ) -> tuple[WritePlan, list[SlotResult]]:
        """Do once more what other writers were faster to change: the write stage of those slots alone."""
        reads, planned = self.intent.reads(plan.schema), {slot.index: slot.index for slot in plan.slots}
        for _ in range(0 if reads is Reads.MORE else self.intent.options.conflict_retries):
            again = transaction.redo(plan.slots, reads)
            if not again:
                break
            _log.info("%d slots are done again, since others have changed their file groups", len(again))
            plan = plan.with_again(again)
            planned |= {new.index: planned[old] for old, new in again.items()}
            numbers_of = {planned[old]: new.index for old, new in again.items()}
            more = self._sound(routed.results(plan, numbers_of), transaction)
            results = [*(result for result in results if result.slot not in again), *more]
        return plan, results

    def _sound(self, results: list[SlotResult], transaction: Transaction) -> list[SlotResult]:
        """What a write stage told, unless a task met what no retry can mend."""
        reached(Point.STAGE_ENDED, instant=transaction.time)
        for result in results:
            if result.problem:
                name, message, path = result.problem
                kind = error_named(name)
                assert kind is not None
                raise kind(message, path=path)
            self._answered |= {result.attempt, *([result.marker.attempt] if result.marker else ())}
        return results

    def _pinned(self, plan: WritePlan, incoming: Incoming, laid_out: DataFrame) -> DataFrame:
        """The write stage on rows that are stored first, since their next reading may give others."""
        with self._steps.taking("pin"):
            plan.storage.make_folder(plan.control.rows_folder)
            pinned = laid_out.mapInArrow(PinRows(plan, incoming.derived), PinRows.SCHEMA)
            before = self.jobs.jobs()
            parts = len(pinned.collect())
            if self.jobs.have_repeated(before):
                raise errors.IndeterminateInputError(
                    "a part of the rows, which go by chance, was made again while they were stored: "
                    "some may have been lost, and others doubled",
                    hint="write again, or write rows that a second reading gives again: cache them, "
                    "or store them first",
                )
        tasks = numbers(self.df.sparkSession, parts, parts)
        return tasks.mapInArrow(RunPinnedSlots(plan), RunPinnedSlots.SCHEMA)

    def _counted(self, incoming: Incoming) -> Fingerprint | None:
        """All rows of a bulk insert, where they are to be counted before they are written."""
        if not self.intent.bulk or self.intent.options.pin_input is not PinInput.CHECK:
            return None
        found = incoming.frame.agg(
            F.count(F.lit(1)).alias("rows"), F.sum(FINGERPRINT).alias("keys")
        ).collect()
        return Fingerprint(rows=found[0]["rows"], keys=found[0]["keys"] or 0)

    def _laid_out(self, frame: DataFrame) -> DataFrame:
        """A bulk insert's rows in the order that its sort mode asks for."""
        mode, tasks = self.intent.options.sort_mode, self.intent.options.bulk_insert_parallelism
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

    # -- steps 6 to 8: reconcile, prepare the commit, complete it ------------------------------------------

    def _commit(
        self,
        transaction: Transaction,
        plan: WritePlan,
        routed: Routed | None,
        results: list[SlotResult],
        expected: Expected,
        *,
        counted: bool,
    ) -> WriteResult:
        with self._steps.taking("reconcile"):
            slots = _slots(results) if routed is None else len(plan.slots)
            markers = transaction.finalize(slots, _without_rows(plan, results))
            _refuse_other_markers(results, markers)
            if counted:
                transaction.compare(markers, expected)
        with self.interrupts.undisturbed():
            with self._steps.taking("complete"):
                transaction.commit(markers)
            self.interrupts.too_late = True
            with self._steps.taking("clean up"):
                fenced = self._clean_up(transaction)
        stats = [file.stat for marker in markers for file in marker.files]
        redone = len(plan.slots) - len(routed.book) if routed else 0
        return self._result(transaction, results, stats, redone=redone, fenced=fenced)

    def _clean_up(self, transaction: Transaction) -> int:
        """The write is durable: what can't be tidied now is swept by the next one.

        Returns
        -------
        How many attempts were fenced; their begin markers go with the rest.
        """
        fenced = 0
        with contextlib.suppress(errors.RobustWriteError):  # it is of no more use than to know it
            fenced = attempts_besides(transaction.table.storage, transaction.time, self._answered)
        try:
            transaction.clean_up()
        except errors.RobustWriteError as error:
            _log.warning("committed, but not cleaned up: %s", error)
        return fenced

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
            operation_type=self.intent.operation_type(),
        ).to_bytes()

    def _result(
        self,
        transaction: Transaction,
        results: list[SlotResult],
        stats: list[WriteStat],
        *,
        redone: int,
        fenced: int,
    ) -> WriteResult:
        return WriteResult.of_stats(
            stats,
            path=self.intent.table.storage.url,
            operation=self.intent.options.operation.value,
            instant=transaction.time,
            completion=transaction.done.completion if transaction.done else None,
            mode=self.intent.mode,
            slots=len({result.slot for result in results}),
            slots_redone=redone,
            attempts_reused=sum(result.reused for result in results),
            attempts_fenced=fenced,
            files_discarded=sum(result.discarded for result in results),
            seconds=dict(self._steps.seconds),
        )


def _is_sparks(error: BaseException) -> bool:
    return isinstance(error, Exception) and not isinstance(error, errors.RobustWriteError)


def _in_our_words(error: BaseException, transaction: Transaction | None) -> errors.RobustWriteError | None:
    """What an error of Spark's comes to, of a write that was undone, if that is known."""
    if not _is_sparks(error):
        return None
    if transaction is None:
        return raised_by_a_task(error)
    if transaction.fenced is not None:
        return transaction.fenced  # what its tasks ran into is only how they noticed
    told = raised_by_a_task(error)
    if told is not None:
        tell_undone(told, path=transaction.table.storage.url, instant=transaction.time)
    return told


def _slots(results: list[SlotResult]) -> int:
    """How many slots a bulk insert has: as many as tasks answered."""
    slots = {result.slot for result in results}
    if slots != set(range(len(results))):
        raise InternalError(f"tasks answered for the slots {sorted(slots)}")
    return len(results)


def _without_rows(plan: WritePlan, results: list[SlotResult]) -> set[int]:
    """The slots that share their rows with others, and of which no task told: none has come to them.

    The rows of one may be few, or of few keys, so that no key's hash falls into its share.
    """
    told = {result.slot for result in results}
    return {slot.index for slot in plan.slots} - plan.expected.keys() - told


def _changed(routed: Routed | None) -> list[FileGroup]:
    """The file groups that a write is going to change."""
    slots = routed.book.slots() if routed else ()
    return [(slot.partition, slot.prefix) for slot in slots if slot.base is not None]


def _single(expected: Expected) -> dict[int, Fingerprint]:
    """The rows of slots that were counted by themselves."""
    return {slot: rows for slots, rows in expected if len(slots) == 1 for slot in slots}


def _refuse_other_markers(results: list[SlotResult], markers: list[CompletionMarker]) -> None:
    """What tasks told must be what stands: they serve the winner's statuses."""
    standing = {marker.slot: marker.attempt for marker in markers}
    for result in results:
        if result.marker is None or standing.get(result.slot) != result.marker.attempt:
            raise InternalError(
                f"a task told of another attempt at slot {result.slot} than its completion marker"
            )
