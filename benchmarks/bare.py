"""A writer with the robustness switched off: what is left when nothing may go wrong.

The same plan of Spark's, the same handles, the same files and the same commit, without what the protocol
adds: begin and completion markers, looks at the gate, finalizing, sealing, reading and verifying what was
staged, the decision, fingerprints, the search for what failed writes left.  Files are written under their
final names.  What it costs to be durable stays: every file and its folder are synced, on both sides.

It is for the benchmark alone.  A task that runs twice doubles its rows here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from sparkrobust.coordinator.content import content_of
from sparkrobust.coordinator.partitions import make_partitions
from sparkrobust.coordinator.transaction import Transaction
from sparkrobust.core.decision import Commit
from sparkrobust.core.instant import Instant, InstantTime, State
from sparkrobust.core.markers import CompletionMarker, Fingerprint
from sparkrobust.core.names import MarkerType, instant_file
from sparkrobust.core.outcome import WriteResult
from sparkrobust.core.write_status import WriteStat
from sparkrobust.core.written import StagedFile
from sparkrobust.handles import files, work
from sparkrobust.handles.attempt import SlotAttempt, Write
from sparkrobust.handles.plan import FINGERPRINT, SlotResult, WritePlan
from sparkrobust.spark import pipeline, prepare, routing, writer
from sparkrobust.spark.pipeline import WriteRun
from sparkrobust.spark.tasks import Batches, Made, RunPackedSlots, RunSlots
from sparkrobust.storage.contract import StagedWriter

# -- in tasks -----------------------------------------------------------------------------------------------


def begin_in_place(plan: WritePlan, path: str, kind: MarkerType) -> StagedWriter:
    """Open a data file under its final name."""
    folder, _, name = path.rpartition("/")
    plan.storage.make_folder(folder)
    return plan.storage.stage(folder, name, path)


class BareAttempt(SlotAttempt):
    """Writes the slot, and that is all."""

    def run(self, tables: Iterable[pa.Table], write: Write) -> SlotResult:
        written = tuple(write(iter(tables)))
        rows = sum(file.stat.num_writes for file in written)
        marker = CompletionMarker(
            slot=self.slot, attempt=self.attempt.token, input=Fingerprint(rows=rows), files=written
        )
        return SlotResult(slot=self.slot, marker=marker)


@contextlib.contextmanager
def _replaced(*changes: tuple[Any, str, Any]) -> Iterator[None]:
    """Other values for some names, as long as the block runs."""
    before = [(place, name, getattr(place, name)) for place, name, _ in changes]
    for place, name, value in changes:
        setattr(place, name, value)
    try:
        yield
    finally:
        for place, name, value in before:
            setattr(place, name, value)


def _bare_handles() -> contextlib.AbstractContextManager[None]:
    return _replaced(
        (work, "is_open", lambda plan: True),
        (work, "SlotAttempt", BareAttempt),
        (files, "begin_file", begin_in_place),
    )


class BareSlots(RunSlots):
    """The write stage of rows that come by a shuffle, or as they are."""

    def run(self, batches: Batches) -> Made:
        with _bare_handles():
            yield from super().run(batches)


class BarePackedSlots(RunPackedSlots):
    """The write stage of rows that the driver has."""

    def run(self, batches: Batches) -> Made:
        with _bare_handles():
            yield from super().run(batches)


# -- on the driver ------------------------------------------------------------------------------------------


class BareTransaction(Transaction):
    """The files that the timeline must have, and nothing of ours."""

    def begin(self, *, requested: bytes = b"", inflight: bytes = b"", **_: Any) -> None:
        self.table.storage.put_if_absent(self._file(State.REQUESTED), requested)
        self.table.storage.put_if_absent(self._file(State.INFLIGHT), inflight)

    def _stage_commit(self, completion: InstantTime, stats: Any) -> StagedFile:
        self._commit_bytes = content_of(self.table, self.terms, self.folder, stats).to_bytes()
        done = Instant(time=self.time, action=self.terms.action, state=State.COMPLETED, completion=completion)
        return StagedFile(final_path=instant_file(done), token="", size=len(self._commit_bytes))

    def _decide(self, wanted: Commit) -> None:
        self._decided = wanted

    def _finish(self) -> None:
        wanted = self._decided
        assert wanted is not None
        make_partitions(self.table, wanted.new_partitions, self.time)
        self.table.storage.put_if_absent(wanted.commit_file.final_path, self._commit_bytes)
        self.done = wanted.instant(self.folder)
        self.table.timeline = self.table.timeline.having(self.done)

    def clean_up(self) -> None:
        # The rows that the driver left for its tasks, where it left some.
        self.table.storage.delete_tree(self.folder.path)

    def abort(self, reason: str) -> bool:
        raise RuntimeError(f"the bare writer can't undo anything: {reason}")


class BareRun(WriteRun):
    """The steps of a write that goes by what its tasks tell."""

    def _commit(
        self,
        transaction: Transaction,
        plan: WritePlan,
        routed: routing.Routed | None,
        results: list[SlotResult],
        expected: Any,
        *,
        counted: bool,
    ) -> WriteResult:
        markers = [result.marker for result in results if result.marker is not None]
        if len(markers) < len(results):
            raise RuntimeError(f"slots failed: {[result.problem for result in results if result.problem]}")
        with self._steps.taking("complete"):
            transaction.commit(markers)
        with self._steps.taking("clean up"):
            transaction.clean_up()
        stats: list[WriteStat] = [file.stat for marker in markers for file in marker.files]
        return self._result(transaction, results, stats, redone=0, fenced=0)


def _no_fingerprint(key: Column) -> Column:
    return F.lit(0).cast("long").alias(FINGERPRINT)


_NOTHING_TO_ROLL_BACK: Callable[[Any], list[Instant]] = lambda table: []  # noqa: E731


@contextlib.contextmanager
def switched_off() -> Iterator[None]:
    """Writes that are begun in the block are bare ones."""
    with (
        _bare_handles(),
        _replaced(
            (writer, "WriteRun", BareRun),
            (writer, "roll_back_failed_writes", _NOTHING_TO_ROLL_BACK),
            (pipeline, "Transaction", BareTransaction),
            (pipeline, "RunSlots", BareSlots),
            (routing, "RunSlots", BareSlots),
            (routing, "RunPackedSlots", BarePackedSlots),
            (prepare, "_fingerprint", _no_fingerprint),
        ),
    ):
        yield
