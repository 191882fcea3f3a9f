"""The same write plan, run again after the write has ended (RFC-79, case 2): statuses, and no new file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from sparkrobust.coordinator.create import make_table
from sparkrobust.coordinator.table import HudiTable
from sparkrobust.coordinator.transaction import Transaction
from sparkrobust.core.file_ids import Slot
from sparkrobust.core.instant import Action
from sparkrobust.core.markers import Terms
from sparkrobust.core.names import BaseFileName
from sparkrobust.core.view import BaseFile
from sparkrobust.core.write_status import OperationType
from sparkrobust.core.written import WrittenFile
from sparkrobust.errors import CorruptTableError, FencedError
from sparkrobust.handles.plan import FileOptions, SlotResult, WritePlan
from sparkrobust.handles.remake import written_keys
from sparkrobust.handles.work import run
from sparkrobust.options import parse
from sparkrobust.storage.local import LocalStorage
from sparkrobust.world import Clock, Ids
from tests.handles.slots import SCHEMA, UPSERT, attempt, incoming, row

AVRO = '{"type":"record","name":"t_record","namespace":"hoodie.t","fields":[]}'


@pytest.fixture
def table(tmp_path: Path) -> HudiTable:
    options = parse({"hoodie.table.name": "t", "hoodie.datasource.write.recordkey.field": "id"})
    return make_table(LocalStorage(str(tmp_path / "table")), options, Clock(), Ids())[0]


def begun(table: HudiTable, slots: tuple[Slot, ...], **how: bool) -> tuple[Transaction, WritePlan]:
    terms = Terms(action=Action.COMMIT, operation=OperationType.UPSERT, schema=AVRO)
    transaction = Transaction(table, terms)
    transaction.begin(slots=len(slots) or None)
    plan = WritePlan(
        storage=table.storage,
        control=transaction.folder,
        schema=SCHEMA,
        rules=UPSERT,
        files=FileOptions(codec="snappy", max_file_bytes=1 << 20, row_group_bytes=1 << 18),
        slots=slots,
        tasks=tuple(range(len(slots))),
        seed="" if slots else table.ids.uuid(),
        **how,
    )
    return transaction, plan


def base_of(file: WrittenFile) -> BaseFile:
    name = BaseFileName.parse(file.staged.final_path.rpartition("/")[2])
    assert name is not None
    return BaseFile(partition=file.stat.partition_path or "", name=name, size=file.staged.size)


def again(plan: WritePlan, task: int, batch: pa.RecordBatch) -> SlotResult:
    (result,) = run(plan, replace(attempt(9), task=task), iter([batch]))
    return result


def everything(table: HudiTable) -> list[tuple[str, int]]:
    return sorted((info.path, info.size) for info in table.storage.walk(""))


@pytest.mark.parametrize("bulk", [False, True])
def test_a_plan_that_runs_again_after_the_commit_serves_what_was_written(
    table: HudiTable, bulk: bool
) -> None:
    slots = (Slot(index=0, partition="p", prefix="u"), Slot(index=1, partition="q", prefix="v"))
    transaction, plan = begun(table, () if bulk else slots)
    batches = [
        incoming([row(1), row(2), row(2)], slot=None if bulk else 0, path="p"),
        incoming([row(3)], slot=None if bulk else 1, path="q"),
    ]
    first = [again(plan, task, batch) for task, batch in enumerate(batches)]
    transaction.commit(transaction.finalize(2))
    transaction.clean_up()
    before = everything(table)
    second = [again(plan, task, batch) for task, batch in enumerate(batches)]
    assert [[file.stat for file in result.files] for result in second] == [
        [file.stat for file in result.files] for result in first
    ]
    assert all(result.reused for result in second)
    assert everything(table) == before
    keys = [
        [
            key
            for file in result.files
            for part in written_keys(plan, base_of(file))
            for key in part.to_pylist()
        ]
        for result in second
    ]
    assert keys == [["1", "2", "2"] if bulk else ["1", "2"], ["3"]]


def test_what_a_merge_came_to_is_told_by_its_file_and_the_one_before(table: HudiTable) -> None:
    transaction, plan = begun(table, (Slot(index=0, partition="p", prefix="u"),))
    again(plan, 0, incoming([row(1), row(2), row(4)]))
    transaction.commit(transaction.finalize(1))
    transaction.clean_up()
    (base,) = table.base_files()
    transaction, plan = begun(table, (Slot(index=0, partition="p", base=base, prefix=base.file_id),))
    batch = incoming([row(2, "new", 9), row(3), row(4)])
    deleted = pa.array([False, False, True])
    batch = batch.append_column("_hoodie_is_deleted", deleted)
    first = again(plan, 0, batch)
    transaction.commit(transaction.finalize(1))
    transaction.clean_up()
    (file,) = again(plan, 0, batch).files
    assert [file.stat] == [one.stat for one in first.files]
    assert (file.stat.num_inserts, file.stat.num_update_writes, file.stat.num_deletes) == (1, 1, 1)
    # Keys that were only carried over are not of this write.
    assert [key for part in written_keys(plan, base_of(file)) for key in part.to_pylist()] == ["2", "3"]


@pytest.mark.parametrize("ends", ["rolled back", "told to fail"])
def test_a_plan_that_runs_again_has_nothing_to_serve_where_the_write_was_undone_or_was_told_to_fail(
    table: HudiTable, ends: str
) -> None:
    transaction, plan = begun(table, (Slot(index=0, partition="p", prefix="u"),), reuse=ends == "rolled back")
    again(plan, 0, incoming([row(1)]))
    if ends == "rolled back":
        transaction.abort("of no use")
    else:
        transaction.commit(transaction.finalize(1))
        transaction.clean_up()
    before = everything(table)
    with pytest.raises(FencedError, match="is over"):
        again(plan, 0, incoming([row(1)]))
    assert everything(table) == before


def test_a_committed_file_that_is_torn_is_not_served(table: HudiTable) -> None:
    transaction, plan = begun(table, (Slot(index=0, partition="p", prefix="u"),))
    again(plan, 0, incoming([row(1)]))
    transaction.commit(transaction.finalize(1))
    transaction.clean_up()
    (base,) = table.base_files()
    table.storage.put(base.path, table.storage.read(base.path)[:-9])
    result = again(plan, 0, incoming([row(1)]))
    assert result.problem is not None
    assert result.problem[0] == CorruptTableError.__name__ and result.problem[2] == base.path
