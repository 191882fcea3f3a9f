"""What runs inside ``mapInArrow``: small callables that travel to executors with their values.

They are classes of this module, so that they are pickled by name and not by their code.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import DataFrame

from sparkrobust import errors
from sparkrobust.core.names import ControlFolder
from sparkrobust.core.view import BaseFile
from sparkrobust.errors import InternalError, RobustWriteError
from sparkrobust.handles.base_file import all_keys, matching_keys
from sparkrobust.handles.packing import pack, pieces, unpack
from sparkrobust.handles.pinned import pin, pinned
from sparkrobust.handles.plan import FINGERPRINT, KEY, PATH, Attempt, Derived, SlotResult, WritePlan
from sparkrobust.handles.rows import missing_keys, renumbered, single, with_derived
from sparkrobust.handles.work import run as run_slots
from sparkrobust.spark.between_tasks import acknowledge, settle
from sparkrobust.spark.whole_input import whole
from sparkrobust.storage import contract
from sparkrobust.storage.contract import Storage
from sparkrobust.world import Ids

Batches = Iterable[pa.RecordBatch]
Made = Iterator[pa.RecordBatch]

FILE = "__sr_file"
BAD_ORDERING = "__sr_bad_ordering"

CHUNK = "chunk binary"
"""The schema of packed rows."""

_SMALL_CHUNK = 16 << 10
_SMALL_CHUNKS = 1024
"""So many partitions may have a small chunk, all of which come to the driver."""


class Task(ABC):
    """A function from batches to batches, as ``mapInArrow`` takes one."""

    def __call__(self, batches: Batches) -> Made:
        acknowledge()
        try:
            yield from self.run(whole(batches))
        finally:
            settle()

    @abstractmethod
    def run(self, batches: Batches) -> Made:
        """What the task does."""


@dataclass(frozen=True)
class PackRows(Task):
    """Rows, packed into binary values of about ``size`` bytes, which are numbered.

    Number 0 is small, and else left out; after the last one comes a null, with their count as its number.
    """

    derived: Derived
    size: int

    SCHEMA = f"number int, {CHUNK}"

    def run(self, batches: Batches) -> Made:
        context = TaskContext.get()
        first = 0 if context is not None and context.partitionId() < _SMALL_CHUNKS else 1
        count = 0
        for table in pieces((with_derived(batch, self.derived) for batch in batches), self.size):
            packed = pack(table)
            if not count and len(packed) > _SMALL_CHUNK:
                first = 1
            yield self._row(first + count, packed)
            count += 1
        if count:
            yield self._row(count, None)

    @staticmethod
    def _row(number: int, packed: bytes | None) -> pa.RecordBatch:
        columns = [pa.array([number], pa.int32()), pa.array([packed], pa.binary())]
        return pa.RecordBatch.from_arrays(columns, ["number", "chunk"])


@dataclass(frozen=True)
class UnpackRows(Task):
    """What :class:`PackRows` packed."""

    def run(self, batches: Batches) -> Made:
        for table in _unpacked(batches):
            yield from table.to_batches()


@dataclass(frozen=True)
class RepackKeys(Task):
    """Of packed rows only what has to be known of every row, packed again."""

    size: int

    SCHEMA = CHUNK

    def run(self, batches: Batches) -> Made:
        wanted = (table.select([PATH, KEY, BAD_ORDERING, FINGERPRINT]) for table in _unpacked(batches))
        for table in pieces((batch for keys in wanted for batch in keys.to_batches()), self.size):
            yield pa.RecordBatch.from_arrays([pa.array([pack(table)], pa.binary())], ["chunk"])


@dataclass(frozen=True)
class CountRows(Task):
    """Of packed rows: how many each partition gets and which, and what is wrong with how many of them."""

    SCHEMA = f"{PATH} string, rows long, keys long, without_key long, bad_ordering long"

    def run(self, batches: Batches) -> Made:
        rows: Counter[str] = Counter()
        keys: Counter[str] = Counter()
        without_key = bad_ordering = 0
        for table in _unpacked(batches):
            counted = table.group_by([PATH], use_threads=False).aggregate(
                [([], "count_all"), (FINGERPRINT, "sum")]
            )
            for found in counted.to_pylist():
                rows[found[PATH]] += found["count_all"]
                keys[found[PATH]] += found[f"{FINGERPRINT}_sum"]
            without_key += missing_keys(table)
            bad_ordering += pc.sum(table[BAD_ORDERING]).as_py() or 0
        if rows:
            # What is wrong is told once, beside the first partition.
            others = [0] * (len(rows) - 1)
            columns = [
                pa.array(list(rows), pa.string()),
                pa.array(list(rows.values()), pa.int64()),
                pa.array([keys[path] for path in rows], pa.int64()),
                pa.array([without_key, *others], pa.int64()),
                pa.array([bad_ordering, *others], pa.int64()),
            ]
            yield pa.RecordBatch.from_arrays(columns, [PATH, "rows", "keys", "without_key", "bad_ordering"])


def _unpacked(batches: Batches) -> Iterator[pa.Table]:
    for batch in batches:
        for packed in batch["chunk"].drop_null():
            yield unpack(packed.as_buffer())


@dataclass(frozen=True)
class ProbeFiles(Task):
    """Looks up the incoming keys of a partition, which come packed, in some of its base files."""

    storage: Storage
    files: tuple[BaseFile, ...]

    SCHEMA = "file int, found binary"

    def run(self, batches: Batches) -> Made:
        for batch in batches:
            for numbers, packed in zip(batch["files"].to_pylist(), batch["chunk"], strict=True):
                keys = single(unpack(packed.as_buffer())[KEY])
                for index in numbers:
                    found = matching_keys(self.storage, self.files[index], keys)
                    yield pa.RecordBatch.from_arrays(
                        [pa.array([index], pa.int32()), pa.array([_bytes_of(found)], pa.binary())],
                        ["file", "found"],
                    )


def _bytes_of(positions: pa.Array) -> bytes:
    return positions.buffers()[1].to_pybytes()[: 4 * len(positions)] if len(positions) else b""


def unpack_positions(packed: bytes) -> pa.Array:
    """The positions that :class:`ProbeFiles` found."""
    return pa.Array.from_buffers(pa.int32(), len(packed) // 4, [None, pa.py_buffer(packed)])


@dataclass(frozen=True)
class ReadKeys(Task):
    """Every record key of some base files, with its partition and its file's number."""

    storage: Storage
    files: tuple[BaseFile, ...]

    SCHEMA = f"{PATH} string, {KEY} string, {FILE} int"

    def run(self, batches: Batches) -> Made:
        for batch in batches:
            for index in batch.column(0).to_pylist():
                base = self.files[index]
                for keys in all_keys(self.storage, base):
                    yield pa.RecordBatch.from_arrays(
                        [
                            pa.repeat(pa.scalar(base.partition), len(keys)),
                            keys,
                            pa.repeat(pa.scalar(index, pa.int32()), len(keys)),
                        ],
                        [PATH, KEY, FILE],
                    )


@dataclass(frozen=True)
class RunSlots(Task):
    """The write stage: rows in, one JSON text for each slot out."""

    plan: WritePlan
    derived: Derived = field(default_factory=Derived)

    SCHEMA = "slot int, result string"

    def run(self, batches: Batches) -> Made:
        yield from _told(self.plan, (with_derived(batch, self.derived) for batch in batches))


@dataclass(frozen=True)
class RunSlotsAgain(Task):
    """The write stage of some slots once more: their rows are given the numbers of those in their place."""

    plan: WritePlan
    again: Mapping[int, int]

    SCHEMA = RunSlots.SCHEMA

    def run(self, batches: Batches) -> Made:
        yield from _told(self.plan, (renumbered(batch, self.again) for batch in batches))


@dataclass(frozen=True)
class RunPackedSlots(Task):
    """The write stage, where the driver has the rows: few travel along, more wait in the control folder."""

    plan: WritePlan
    packed: Mapping[int, bytes]
    """By task; of none where they wait."""

    SCHEMA = RunSlots.SCHEMA

    def run(self, batches: Batches) -> Made:
        for batch in batches:
            for task in batch.column(0).to_pylist():
                yield from _told(self.plan, self._rows(task))

    def _rows(self, task: int) -> Iterator[pa.RecordBatch]:
        packed = (
            self.packed[task] if task in self.packed else self.plan.storage.read(self.plan.control.rows(task))
        )
        yield from unpack(packed).to_batches()


@dataclass(frozen=True)
class PinRows(Task):
    """Keeps the rows of each partition in the control folder; one number for each."""

    plan: WritePlan
    derived: Derived

    SCHEMA = "part int"

    def run(self, batches: Batches) -> Made:
        context = TaskContext.get()
        if context is None:
            raise InternalError("rows are pinned outside of a Spark task")
        rows = (with_derived(batch, self.derived) for batch in batches)
        pin(self.plan.storage, self.plan.control, context.partitionId(), rows, Ids())
        yield pa.RecordBatch.from_arrays([pa.array([context.partitionId()], pa.int32())], ["part"])


@dataclass(frozen=True)
class RunPinnedSlots(Task):
    """The write stage of a bulk insert whose rows were pinned: the numbers of their partitions come in."""

    plan: WritePlan

    SCHEMA = RunSlots.SCHEMA

    def run(self, batches: Batches) -> Made:
        for batch in batches:
            for part in batch.column(0).to_pylist():
                rows = pinned(self.plan.storage, self.plan.control, part)
                yield from _told(self.plan, rows, task=part)


_OURS_IN_A_TRACEBACK = re.compile(r"^sparkrobust\.(?:errors|storage\.contract)\.(\w+): (.*)$", re.MULTILINE)


def error_named(name: str) -> type[RobustWriteError] | None:
    """The error of ours that has this name."""
    found = getattr(errors, name, None) or getattr(contract, name, None)
    return found if isinstance(found, type) and issubclass(found, RobustWriteError) else None


def raised_by_a_task(error: BaseException) -> RobustWriteError | None:
    """The error of ours with which a task ended as often as it was tried, by what Spark says of it."""
    for name, message in reversed(_OURS_IN_A_TRACEBACK.findall(str(error))):
        kind = error_named(name)
        if kind is not None:
            return kind(message)
    return None


def results_of(stage: DataFrame, control: ControlFolder) -> list[SlotResult]:
    """What the write stage tells, once it has run."""
    return [SlotResult.from_json(row.result, control) for row in stage.collect()]


def _told(plan: WritePlan, rows: Iterator[pa.RecordBatch], task: int | None = None) -> Made:
    context = TaskContext.get()
    if context is None:
        raise InternalError("a write handle runs outside of a Spark task")
    number = context.partitionId() if task is None else task
    attempt = Attempt.of(number, stage=context.stageId(), ids=Ids())
    for result in run_slots(plan, attempt, rows):
        yield pa.RecordBatch.from_arrays(
            [pa.array([result.slot], pa.int32()), pa.array([result.to_json()])], ["slot", "result"]
        )
