"""One of many writers, without Spark: the coordinator and the write handles of a driver."""

from __future__ import annotations

import sys

import pyarrow as pa

from fault_injection.writers.turns import COLUMNS, TABLE, Rows, Task
from sparkrobust.coordinator.coordination import coordination_of
from sparkrobust.coordinator.create import make_table
from sparkrobust.coordinator.rollback import roll_back_failed_writes
from sparkrobust.coordinator.table import HudiTable
from sparkrobust.coordinator.transaction import Transaction
from sparkrobust.core.file_ids import Slot
from sparkrobust.core.instant import Action
from sparkrobust.core.markers import Terms
from sparkrobust.core.names import WRITER
from sparkrobust.core.view import BaseFile
from sparkrobust.core.write_status import OperationType
from sparkrobust.errors import CommitUnknownError
from sparkrobust.formats.schema import TableSchema
from sparkrobust.handles import work
from sparkrobust.handles.base_file import matching_keys
from sparkrobust.handles.plan import KEY, SLOT, Attempt, FileOptions, Rules, WritePlan
from sparkrobust.options import parse
from sparkrobust.storage.resolve import storage_for
from sparkrobust.world import Clock, Ids

SCHEMA = pa.schema(list(zip(COLUMNS, (pa.string(), pa.int64(), pa.string()), strict=True)))
_RULES = Rules(combine=True, match=True, delete=False, ordering=("ts",))
_FILES = FileOptions(codec="snappy", max_file_bytes=1 << 20, row_group_bytes=1 << 18)


class Writer:
    """All of a driver but Spark."""

    def __init__(self, task: Task) -> None:
        self._options = parse({**TABLE, **task.options})
        self._clock, self._ids = Clock(), Ids()
        self._storage = storage_for(task.url, self._options.storage)
        self._coordination = coordination_of(self._options, self._storage, self._clock, self._ids)
        self._name, self._chance = task.name, task.chance()

    def upsert(self, rows: Rows) -> str:
        table = self._opened()
        roll_back_failed_writes(table)
        slots, keys_of = self._routed(table, rows)
        terms = Terms(
            action=Action.COMMIT,
            operation=OperationType.UPSERT,
            schema=TableSchema.of_arrow(SCHEMA, table.config.name).to_json(),
            extra={WRITER: self._name},
        )
        transaction = Transaction(table, terms)
        try:
            transaction.begin(slots=len(slots))
            plan = WritePlan(
                storage=table.storage, control=transaction.folder, schema=SCHEMA, rules=_RULES, files=_FILES,
                slots=slots, tasks=tuple(range(len(slots))), key_hashes=True,
            )  # fmt: skip
            self._stage(plan, rows, keys_of)
            transaction.commit(transaction.finalize(len(slots)))
        except CommitUnknownError:
            raise
        except BaseException as error:
            if transaction.abort(f"its driver failed: {type(error).__name__}"):
                raise
        finally:
            transaction.leave()
        transaction.clean_up()
        return transaction.time

    def _opened(self) -> HudiTable:
        table, _ = make_table(self._storage, self._options, self._clock, self._ids, self._coordination)
        return table

    def _routed(self, table: HudiTable, rows: Rows) -> tuple[tuple[Slot, ...], list[list[int]]]:
        """The slots, and which of the rows go to each: to the file that has their key, or to one more."""
        new = set(range(len(rows.keys)))
        found: list[tuple[BaseFile, list[int]]] = []
        bases = table.base_files([rows.partition])
        for base in bases:
            held = matching_keys(table.storage, base, pa.array(rows.keys)).to_pylist()
            new -= set(held)
            found.append((base, held))
        if new and bases and self._chance.random() < 0.5:
            found[self._chance.randrange(len(found))][1].extend(sorted(new))
            new = set()
        wanted = [(base, held) for base, held in found if held]
        slots = [
            Slot(index=index, partition=rows.partition, base=base, prefix=base.file_id)
            for index, (base, _) in enumerate(wanted)
        ]
        if new:
            slots.append(Slot(index=len(slots), partition=rows.partition, prefix=self._ids.uuid()))
        return tuple(slots), [*(held for _, held in wanted), *([sorted(new)] if new else [])]

    def _stage(self, plan: WritePlan, rows: Rows, keys_of: list[list[int]]) -> None:
        whole = _table(rows)
        for slot, positions in zip(plan.slots, keys_of, strict=True):
            mine = whole.take(positions)
            mine = mine.append_column(SLOT, pa.array([slot.index] * len(positions), pa.int32()))
            attempt = Attempt.of(slot.index, stage=0, ids=self._ids)
            for result in work.run(plan, attempt, iter(mine.to_batches())):
                if result.problem:
                    raise RuntimeError(result.problem)


def _table(rows: Rows) -> pa.Table:
    columns = [pa.array(column) for column in zip(*rows.tuples(), strict=True)]
    return pa.table(columns, schema=SCHEMA).append_column(KEY, pa.array(rows.keys, pa.string()))


if __name__ == "__main__":
    task = Task.of_json(sys.argv[1])
    task.run(Writer(task).upsert)
