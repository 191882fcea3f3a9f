"""The eight steps of a write (RFC-79): read, dedupe, tag, partition, write, reconcile, prepare, complete.

What is wrong with the input is found before the first trace of the write is on the timeline, where
a pass over the rows precedes the write: in all operations but bulk insert, which reads its rows
once, finds it in its tasks, and is rolled back.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from pyspark.sql import DataFrame

from sparkrobust import __version__, errors
from sparkrobust.coordinator.transaction import VERSION, Transaction
from sparkrobust.core.instant import Action
from sparkrobust.core.outcome import WriteResult
from sparkrobust.core.view import BaseFile
from sparkrobust.core.write_status import NEW_FILE_GROUP, WriteStat
from sparkrobust.errors import IndeterminateInputError
from sparkrobust.formats.commit_metadata import CommitMetadata
from sparkrobust.formats.plans import empty_replace_request
from sparkrobust.handles.plan import KEY, PATH, SlotResult, WritePlan, WrittenFile
from sparkrobust.options import SortMode
from sparkrobust.spark.frames import Frames
from sparkrobust.spark.intent import Intent
from sparkrobust.spark.interrupts import Interrupts, JobGroup
from sparkrobust.spark.prepare import Incoming, prepare
from sparkrobust.spark.routing import Routed, Router
from sparkrobust.spark.slots import SlotBook
from sparkrobust.spark.steps import Steps
from sparkrobust.spark.tasks import RunSlots, results_of
from sparkrobust.storage import contract

_log = logging.getLogger("sparkrobust")


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
        transaction: Transaction | None = None
        try:
            with self._steps.taking("read"):
                incoming = prepare(self.df, intent)
                old = intent.table.base_files() if intent.replacing else []
            routed = None if intent.bulk else Router(intent, frames, self._steps).route(incoming)
            action = Action.REPLACE_COMMIT if intent.replacing else Action.COMMIT
            transaction = Transaction(intent.table, action)
            with self._steps.taking("write"):
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
            frames.release()

    # -- step 5: write -----------------------------------------------------------------------------------

    def _write(
        self, transaction: Transaction, incoming: Incoming, routed: Routed | None
    ) -> list[WrittenFile]:
        plan = WritePlan(
            storage=self.intent.table.storage,
            control=transaction.control,
            schema=incoming.schema.arrow,
            rules=self.intent.rules(),
            files=self.intent.file_options(),
            slots=routed.book.slots() if routed else (),
            tasks=routed.book.tasks() if routed else (),
            seed=self.intent.table.ids.uuid() if routed is None else "",
        )
        if routed is not None and not plan.slots:
            return []
        if routed is None:
            laid_out = self._laid_out(incoming.frame)
            results = results_of(laid_out.mapInArrow(RunSlots(plan, incoming.derived), RunSlots.SCHEMA))
        else:
            results = routed.results(plan)
        return self._reconcile(plan, results)

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
                    f"the rows of {len(lost) or 'some'} file groups did not come the way that was planned: "
                    "the input gave other rows when it was read again",
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
        with self._steps.taking("publish"):
            transaction.publish([file.staged for file in files], stats)
        with self._steps.taking("complete"), self.interrupts.undisturbed():
            transaction.complete(
                self.intent.operation_type(),
                stats,
                incoming.schema.to_json(),
                replaced=replaced,
                new_properties=self.new_properties,
                extra={**self.intent.options.commit_metadata, VERSION: __version__},
                may_drop_metadata_table=self.intent.options.drop_metadata_table,
            )
        with self._steps.taking("clean up"), self.interrupts.undisturbed():
            self._clean_up(transaction)
        return self._result(transaction, stats)

    @staticmethod
    def _clean_up(transaction: Transaction) -> None:
        """The write is durable: what can't be tidied now is swept by the next one."""
        try:
            transaction.clean_up()
        except errors.RobustWriteError as error:
            _log.warning("committed, but not cleaned up: %s", error)

    def _requested(self) -> bytes:
        return empty_replace_request() if self.intent.replacing else b""

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

    def _result(self, transaction: Transaction, stats: list[WriteStat]) -> WriteResult:
        created = sum(1 for stat in stats if stat.prev_commit == NEW_FILE_GROUP)
        return WriteResult(
            path=self.intent.table.storage.url,
            operation=self.intent.options.operation.value,
            instant=transaction.time,
            completion=transaction.completion,
            inserted=sum(stat.num_inserts for stat in stats),
            updated=sum(stat.num_update_writes for stat in stats),
            deleted=sum(stat.num_deletes for stat in stats),
            files_created=created,
            files_rewritten=len(stats) - created,
            partitions=len({stat.partition_path for stat in stats}),
            bytes_written=sum(stat.file_size_in_bytes for stat in stats),
            seconds=dict(self._steps.seconds),
        )
