"""Making a table, and forgetting one that never held a row."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkrobust.coordinator.create import forget_table, is_made, make_table
from sparkrobust.coordinator.table import HudiTable
from sparkrobust.coordinator.transaction import Transaction
from sparkrobust.core.names import HOODIE, LOCK_FILE
from sparkrobust.errors import TableNotFoundError
from sparkrobust.options import parse
from sparkrobust.storage.contract import Storage
from sparkrobust.storage.locks import FileSystemLock
from sparkrobust.world import Ids
from tests.coordinator.writes import begun, commit, terms

NEW_TABLE = {"hoodie.table.name": "t", "hoodie.datasource.write.recordkey.field": "id"}


def test_a_table_that_was_made_for_a_write_that_failed_is_forgotten_unless_another_one_was_begun(
    table: HudiTable,
) -> None:
    storage = table.storage
    other = begun(HudiTable.open(storage, table.clock, table.ids))
    forget_table(table)
    assert is_made(storage)
    other.abort("it failed, too")
    forget_table(table)
    assert not is_made(storage) and list(storage.walk(HOODIE)) == []


def test_a_table_is_not_forgotten_while_another_writer_of_the_process_has_its_lock(table: HudiTable) -> None:
    begins = table.coordination.lock.acquire("a write that begins", seconds=0)
    table.coordination = replace(table.coordination, lock_seconds=0)
    forget_table(table)
    assert is_made(table.storage)
    begins.release()
    forget_table(table)
    assert not is_made(table.storage)


def test_a_table_whose_lock_is_shared_stays_as_others_may_have_found_it(table: HudiTable) -> None:
    lock = FileSystemLock(table.storage, LOCK_FILE, clock=table.clock)
    table.coordination = replace(table.coordination, lock=lock)
    forget_table(table)
    commit(table)


def test_a_write_into_a_table_that_was_forgotten_meanwhile_says_so_and_a_later_one_makes_it_anew(
    table: HudiTable,
) -> None:
    storage = table.storage
    opened = HudiTable.open(storage, table.clock, table.ids)
    forget_table(table)
    late = Transaction(opened, terms())
    with pytest.raises(TableNotFoundError, match="is no table any more") as told:
        late.begin(slots=1)
    assert told.value.outcome == "Retryable" and late.abort("") is True
    assert list(storage.walk(HOODIE)) == []
    again, made = make_table(storage, parse(dict(NEW_TABLE)), table.clock, Ids())
    assert made
    commit(again)


SCRAPS = (".robust/20240101000000000-aa/gate", ".heartbeat/20240101000000000", ".locks/table_lock.json")
TRACES = (
    "timeline/20240101000000000.commit.requested",
    "20240101000000000.commit",
    "hoodie.properties.backup",
)


@pytest.mark.parametrize(
    ("name", "is_table"),
    [(name, False) for name in (*SCRAPS, "lock", "probe-1")] + [(name, True) for name in (*TRACES, "new")],
)
def test_what_failed_writes_leave_where_there_was_no_table_is_none_and_all_else_may_be_one(
    storage: Storage, name: str, is_table: bool
) -> None:
    storage.make_folder(f"{HOODIE}/timeline")
    assert not is_made(storage)
    path = f"{HOODIE}/{name}"
    storage.make_folder(path.rpartition("/")[0])
    storage.put_if_absent(path, b"x")
    assert is_made(storage) == is_table
