"""What runs inside ``mapInArrow``: small callables that travel to executors with their values.

They are classes of this module, so that they are pickled by name and not by their code.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from sparkrobust.core.view import BaseFile
from sparkrobust.errors import InternalError
from sparkrobust.handles.base_file import all_keys, matching_keys
from sparkrobust.handles.plan import KEY, PATH, Attempt, WritePlan
from sparkrobust.handles.work import run as run_slots
from sparkrobust.spark.between_tasks import settle
from sparkrobust.storage.contract import Storage
from sparkrobust.world import Ids

Batches = Iterable[pa.RecordBatch]
Made = Iterator[pa.RecordBatch]

FILE = "__sr_file"
BAD_ORDERING = "__sr_bad_ordering"

_EMIT_ROWS = 64 * 1024


class Task(ABC):
    """A function from batches to batches, as ``mapInArrow`` takes one."""

    def __call__(self, batches: Batches) -> Made:
        try:
            yield from self.run(batches)
        finally:
            settle()

    @abstractmethod
    def run(self, batches: Batches) -> Made:
        """What the task does."""


def _exhaust(batches: Batches) -> None:
    for _ in batches:
        pass


@dataclass(frozen=True)
class EmitTable(Task):
    """A table that the driver has, as a DataFrame: the one row that comes in starts it."""

    table: pa.Table

    def run(self, batches: Batches) -> Made:
        _exhaust(batches)
        yield from self.table.to_batches(max_chunksize=_EMIT_ROWS)


@dataclass(frozen=True)
class PackKeys(Task):
    """Partition paths and record keys, packed into a few binary values for the driver."""

    SCHEMA = "keys binary, bad_ordering long"

    def run(self, batches: Batches) -> Made:
        tables, bad = [], 0
        for batch in batches:
            table = pa.Table.from_batches([batch])
            bad += pc.sum(table[BAD_ORDERING]).as_py() or 0
            tables.append(table.select([PATH, KEY]))
        if not tables:
            return
        whole = pa.concat_tables(tables).combine_chunks()
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, whole.schema) as writer:
            writer.write_table(whole)
        packed = pa.array([sink.getvalue().to_pybytes()], pa.binary())
        yield pa.RecordBatch.from_arrays([packed, pa.array([bad], pa.int64())], ["keys", "bad_ordering"])


def unpack_keys(packed: Sequence[bytes]) -> pa.Table:
    """What the tasks packed, together."""
    tables = [pa.ipc.open_stream(one).read_all() for one in packed]
    if not tables:
        return pa.table({PATH: pa.array([], pa.string()), KEY: pa.array([], pa.string())})
    return pa.concat_tables(tables).combine_chunks()


@dataclass(frozen=True)
class ProbeFiles(Task):
    """Looks up the incoming keys of a partition in its base files."""

    storage: Storage
    files: tuple[BaseFile, ...]
    keys: dict[str, pa.Array]

    SCHEMA = "file int, found binary"

    def run(self, batches: Batches) -> Made:
        for batch in batches:
            for index in batch.column(0).to_pylist():
                base = self.files[index]
                found = matching_keys(self.storage, base, self.keys[base.partition])
                packed = pa.array(
                    [found.buffers()[1].to_pybytes()[: 4 * len(found)] if len(found) else b""], pa.binary()
                )
                yield pa.RecordBatch.from_arrays([pa.array([index], pa.int32()), packed], ["file", "found"])


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

    SCHEMA = "slot int, result string"

    def run(self, batches: Batches) -> Made:
        context = TaskContext.get()
        if context is None:
            raise InternalError("a write handle runs outside of a Spark task")
        task = context.partitionId()
        attempt = Attempt(task=task, token=f"{task}-{context.stageId()}-{Ids().number()}")
        for result in run_slots(self.plan, attempt, iter(batches)):
            yield pa.RecordBatch.from_arrays(
                [pa.array([result.slot], pa.int32()), pa.array([result.to_json()])], ["slot", "result"]
            )
