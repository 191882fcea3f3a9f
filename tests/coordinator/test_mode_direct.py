"""Tasks that make their files visible at once: what no commit is made of goes away before it counts as data.

Of a table without partitions, too, whose begin markers lie in no folder.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkrobust.coordinator.create import make_table
from sparkrobust.coordinator.leftovers import begin_markers
from sparkrobust.coordinator.rollback import roll_back_failed_writes
from sparkrobust.coordinator.table import HudiTable
from sparkrobust.coordinator.transaction import Transaction
from sparkrobust.core.names import (
    MARKER_LIST,
    MARKER_LISTS_SAY,
    MARKERS_ARE_LISTED,
    MarkerType,
    begin_marker,
    marker_folder,
)
from sparkrobust.options import parse
from sparkrobust.storage.contract import Storage
from sparkrobust.storage.direct import DirectStorage
from sparkrobust.world import Ids
from tests.clocks import TestClock
from tests.coordinator.writes import begun, data_files, dead, leftovers, opened, stage

pytestmark = pytest.mark.parametrize("partition", ["", "p1"])


@pytest.fixture
def table(storage: Storage, partition: str) -> HudiTable:
    options = {"hoodie.table.name": "t", "hoodie.datasource.write.recordkey.field": "id"}
    if partition:
        options["hoodie.datasource.write.partitionpath.field"] = "p"
    return make_table(storage, parse(options), TestClock(), Ids())[0]


def run_task(transaction: Transaction, partition: str, token: str = "0-0-1") -> str:
    """An attempt of a write in mode direct, which is gone before it can take back what it did."""
    table = transaction.table
    in_task = replace(table, storage=DirectStorage(table.storage))
    path = stage(in_task, transaction, partition, token=token)
    assert table.storage.stat(path) is not None
    return path


def commit(table: HudiTable, partition: str) -> str:
    table.clock.sleep(1)
    later = begun(opened(table))
    path = run_task(later, partition)
    later.commit(later.finalize(1))
    later.clean_up()
    return path


@pytest.mark.parametrize("dies", [False, True])
def test_what_a_write_that_fails_made_visible_is_no_data_once_another_is_committed(
    table: HudiTable, partition: str, dies: bool
) -> None:
    failed = begun(table)
    run_task(failed, partition)
    if dies:
        assert roll_back_failed_writes(opened(dead(failed).table)) != []
    else:
        assert failed.abort("it failed")
    assert data_files(table.storage) == []
    new = commit(table, partition)
    assert [base.path for base in opened(table).base_files()] == [new]
    assert leftovers(table.storage) == []


def test_what_attempts_that_lost_made_visible_is_gone_before_the_commit(
    table: HudiTable, partition: str
) -> None:
    write = begun(table)
    won = run_task(write, partition)
    run_task(write, partition, token="0-0-2")
    markers = write.finalize(1)
    assert data_files(table.storage) == [won]
    write.commit(markers)
    write.clean_up()
    assert [base.path for base in opened(table).base_files()] == [won]


def test_where_the_folder_says_that_marks_are_lists_these_alone_name_every_file_as_hudi_reads_them(
    table: HudiTable, partition: str
) -> None:
    write = begun(table)
    files = {run_task(write, partition, token=f"0-0-{number}") for number in range(3)}
    folder = marker_folder(write.time)
    found = {info.path.removeprefix(f"{folder}/") for info in table.storage.walk(folder)}
    assert {path for path, _ in begin_markers(table.storage, write.time)} == files
    if MARKER_LISTS_SAY not in found:
        return  # each is a file: Hudi's other way
    assert table.storage.read(f"{folder}/{MARKER_LISTS_SAY}") == MARKERS_ARE_LISTED
    lists = [name for name in found - {MARKER_LISTS_SAY} if name.startswith(MARKER_LIST)]
    lines = [line for name in lists for line in table.storage.read(f"{folder}/{name}").decode().splitlines()]
    assert {f"{folder}/{line}" for line in lines} == {
        begin_marker(write.time, path, MarkerType.CREATE) for path in files
    }
