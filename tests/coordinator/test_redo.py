"""A write that was overtaken writes again what others have changed, and nothing else, before it commits."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import cast

import pytest

from fault_injection.s3_server import S3Server
from sparkrobust import probe
from sparkrobust.coordinator.control import Control
from sparkrobust.coordinator.create import make_table
from sparkrobust.coordinator.recovery import Fate, recover
from sparkrobust.coordinator.rollback import roll_back_failed_writes
from sparkrobust.coordinator.table import HudiTable
from sparkrobust.coordinator.transaction import Transaction
from sparkrobust.core.conflicts import Strategy
from sparkrobust.core.instant import Action
from sparkrobust.core.redo import Reads
from sparkrobust.core.write_status import OperationType
from sparkrobust.errors import ConflictError, FencedError, IndeterminateInputError, UnavailableError
from sparkrobust.options import parse
from sparkrobust.probe import Point
from sparkrobust.storage.contract import Storage
from sparkrobust.storage.memory import MemoryStorage
from sparkrobust.world import Ids
from tests.clocks import TestClock
from tests.coordinator.upserts import OTHER_SCHEMA, SAME_BUT_FOR_ITS_NAME, Upsert, rows, upsert
from tests.coordinator.writers import clustering, writer
from tests.coordinator.writes import Stop, begun, data_files, dead, leftovers, stage, uploads
from tests.moments import Moments, Watched, at

AT_FIRST = dict.fromkeys("abcd", "first")


@pytest.fixture
def two(table: HudiTable) -> HudiTable:
    """A table with two file groups, of the keys a and b, and c and d."""
    upsert(table, "first", ["a", "b"])
    upsert(table, "first", ["c", "d"])
    return table


def overtaken(
    table: HudiTable, late: list[str], early: list[str], *, fills: bool = False, **more: object
) -> Upsert:
    """A write whose tasks are done, and the other, which began before it, is committed by now."""
    first = Upsert(writer(table), "early", early, fills=fills, **more).begin()  # type: ignore[arg-type]
    second = Upsert(writer(table), "late", late, fills=fills).begin().write()
    first.write().commit()
    return second


def is_refused(write: Upsert, match: str = "planned without knowing") -> bool:
    """It conflicts when it commits, and leaves nothing behind."""
    before = data_files(write.table.storage)
    with pytest.raises(ConflictError, match=match):
        write.commit()
    assert write.transaction.abort("it met a conflict") is True
    return data_files(write.table.storage) == before and leftovers(write.table.storage) == []


# -- what is got past --------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", Strategy)
def test_only_the_file_group_that_another_write_has_changed_is_written_again(
    two: HudiTable, strategy: Strategy
) -> None:
    early = Upsert(writer(two), "early", ["a", "b"]).begin()
    late = Upsert(writer(two, strategy=strategy), "late", ["a", "c", "e"]).begin().write()
    early.write().commit()
    assert late.redo() == {0: 3} and late.redo() == {}
    assert late.attempts == [0, 1, 2, 3]
    late.commit()
    assert rows(two) == {"a": "late", "b": "early", "c": "late", "d": "first", "e": "late"}
    assert len(data_files(two.storage)) == 2 + 1 + 3 and leftovers(two.storage) == []
    assert late.transaction.done is not None
    stats = two.commit(late.transaction.done).write_stats
    assert {stat.prev_commit for stat in stats if stat.file_id == early.slots[0].prefix} == {
        early.transaction.time
    }


@pytest.mark.parametrize("storage", ["s3"], indirect=True)
def test_no_upload_is_left_of_the_files_that_do_not_count(two: HudiTable, s3_server: S3Server) -> None:
    late = overtaken(two, ["a", "c"], ["a"])
    late.redo()
    assert len(uploads(two, s3_server)) == 3
    late.commit()
    assert uploads(two, s3_server) == []


def test_without_that_it_is_refused(two: HudiTable) -> None:
    assert is_refused(overtaken(two, ["a", "c"], ["a"]), match="changes 1 file group")


def test_a_write_that_was_not_overtaken_does_nothing_again(two: HudiTable) -> None:
    late = overtaken(two, ["a"], ["c"])
    assert late.redo() == {}
    late.commit()
    assert rows(two) == {**AT_FIRST, "a": "late", "c": "early"}


def test_who_was_overtaken_twice_goes_on_from_the_last_of_the_others(two: HudiTable) -> None:
    first = Upsert(writer(two), "1", ["a", "b"]).begin()
    second = Upsert(writer(two), "2", ["b", "d"]).begin().write()
    late = Upsert(writer(two), "late", ["a", "c"]).begin().write()
    first.write().commit()
    assert second.redo() == {0: 2} and late.redo() == {0: 2}
    second.commit()
    assert late.redo() == {1: 3, 2: 4} and late.attempts == [0, 1, 2, 3, 4]
    late.commit()
    assert rows(two) == {"a": "late", "b": "2", "c": "late", "d": "2"}
    assert leftovers(two.storage) == []


def test_what_is_written_again_has_the_rows_that_were_counted_for_it(two: HudiTable) -> None:
    early = Upsert(writer(two), "early", ["a"]).begin()
    late = Upsert(writer(two), "late", ["a", "b", "c"]).begin(counted=True).write()
    early.write().commit()
    assert late.redo() == {0: 2}
    markers = late.finalize()
    late.transaction.compare(markers, late.expected)
    assert [marker.slot for marker in markers] == [1, 2]
    lost = [(slots, replace(given, rows=given.rows + 1)) for slots, given in late.expected]
    with pytest.raises(IndeterminateInputError, match="a set of 1 slots was given 3 rows"):
        late.transaction.compare(markers, lost[:1])


def test_a_new_key_that_both_put_into_one_file_group_is_updated_there(two: HudiTable) -> None:
    late = overtaken(two, ["e"], ["e", "f"], fills=True)
    assert late.redo() == {0: 1}
    late.commit()
    assert rows(two) == {**AT_FIRST, "e": "late", "f": "early"}


@pytest.mark.parametrize("operation", [OperationType.INSERT, OperationType.BULK_INSERT])
def test_a_write_that_goes_by_nothing_but_its_files_gets_past_inserts_too(
    two: HudiTable, operation: OperationType
) -> None:
    late = overtaken(two, ["a"], ["b"], operation=operation)
    assert late.redo(Reads.WHICH_KEYS_ARE_NEW) == {} and late.redo(Reads.NOTHING) == {0: 1}
    late.commit()
    assert rows(two) == {**AT_FIRST, "a": "late", "b": "early"}


def test_columns_are_compared_and_not_how_they_are_told(two: HudiTable) -> None:
    assert overtaken(two, ["a"], ["b"], schema=SAME_BUT_FOR_ITS_NAME).redo() == {0: 1}


# -- what is not -------------------------------------------------------------------------------------------


def test_behind_a_write_that_began_later_nothing_is_written_again(two: HudiTable) -> None:
    late = Upsert(writer(two), "late", ["a"]).begin().write()
    upsert(writer(two), "early", ["b"])
    assert late.redo() == {} and is_refused(late)
    assert rows(two) == {**AT_FIRST, "b": "early"}


def test_what_is_completed_after_the_last_look_is_found_under_the_lock(two: HudiTable) -> None:
    first, second = (Upsert(writer(two), by, ["a"]).begin() for by in ("1", "2"))
    late = Upsert(writer(two), "late", ["b"]).begin().write()
    first.write().commit()
    assert late.redo() == {0: 1}
    second.write().redo()
    second.commit()
    assert is_refused(late, match=second.transaction.time)
    assert rows(two) == {**AT_FIRST, "a": "2"}


def test_the_same_new_key_in_a_file_group_of_its_own_is_found_all_the_same(two: HudiTable) -> None:
    late = overtaken(two, ["a", "e"], ["b", "e"])
    assert late.redo() == {0: 2}
    assert is_refused(late, match="inserted 1 of the keys")
    assert rows(two) == {**AT_FIRST, "b": "early", "e": "early"}


def test_a_write_that_goes_by_more_than_that_is_refused_as_ever(two: HudiTable) -> None:
    late = overtaken(two, ["a"], ["b"])
    assert late.redo(Reads.MORE) == {} and is_refused(late)


def test_columns_that_the_others_have_added_are_not_lost(two: HudiTable) -> None:
    late = overtaken(two, ["a"], ["b"], schema=OTHER_SCHEMA)
    assert late.redo() == {} and is_refused(late)


def test_file_groups_that_were_replaced_are_not_written_again(two: HudiTable) -> None:
    ours = writer(two)
    replacing = begun(ours, Action.REPLACE_COMMIT)
    late = Upsert(writer(two), "late", ["a"]).begin().write()
    stage(ours, replacing)
    replacing.commit(replacing.finalize(1))
    replacing.clean_up()
    assert late.redo() == {} and is_refused(late)


def test_file_groups_that_a_table_service_is_about_to_replace_are_not_written_again(two: HudiTable) -> None:
    early = Upsert(writer(two), "early", ["a"]).begin()
    late = Upsert(writer(two), "late", ["a", "c"]).begin().write()
    early.write().commit()
    clustering(two, f"{late.slots[1].partition}/{late.slots[1].prefix}")
    assert late.redo() == {} and is_refused(late, match="a pending clustering")


def test_who_can_not_look_goes_on(two: HudiTable, monkeypatch: pytest.MonkeyPatch) -> None:
    late = overtaken(two, ["a"], ["b"])

    def away(*how: object) -> None:
        raise UnavailableError("the store is away")

    with monkeypatch.context() as patch:
        patch.setattr(late.table, "base_files", away)
        assert late.redo() == {}
    assert late.redo() == {0: 1}


# -- drivers that die, and others that take them for dead --------------------------------------------------


def test_a_driver_that_dies_before_it_has_said_what_counts_is_rolled_back(two: HudiTable) -> None:
    late = overtaken(two, ["a", "c"], ["b"])
    assert late.redo() == {0: 2}
    dead(late.transaction)
    (found,) = recover(writer(two))
    assert (found.instant, found.fate) == (late.transaction.time, Fate.ROLLED_BACK)
    assert rows(two) == {**AT_FIRST, "b": "early"} and leftovers(two.storage) == []


def test_a_driver_that_dies_after_that_has_its_write_committed(two: HudiTable) -> None:
    late = overtaken(two, ["a", "c"], ["b"])
    late.redo()
    late.finalize()
    dead(late.transaction)
    (found,) = recover(writer(two))
    assert (found.instant, found.fate) == (late.transaction.time, Fate.COMMITTED)
    assert rows(two) == {"a": "late", "b": "early", "c": "late", "d": "first"}
    assert leftovers(two.storage) == []


def test_a_write_that_lacks_what_was_to_be_done_again_is_rolled_back(two: HudiTable) -> None:
    late = overtaken(two, ["a"], ["b"])
    again = late.transaction.redo(late.slots, Reads.WHICH_KEYS_ARE_NEW)
    with pytest.raises(IndeterminateInputError, match="the rows of 1 file groups"):
        late.transaction.finalize(1 + len(again))
    dead(late.transaction)
    assert [one.fate for one in recover(writer(two))] == [Fate.ROLLED_BACK]
    assert rows(two) == {**AT_FIRST, "b": "early"} and leftovers(two.storage) == []


def _late_write(moments: Moments) -> tuple[HudiTable, Upsert]:
    """A write that is overtaken on a table of its own, and comes to many moments."""
    options = {"hoodie.table.name": "t", "hoodie.datasource.write.recordkey.field": "id"}
    options["hoodie.datasource.write.partitionpath.field"] = "p"
    two, _ = make_table(MemoryStorage(Ids().nonce()), parse(options), TestClock(), Ids())
    for keys in (["a", "b"], ["c", "d"]):
        upsert(two, "first", keys)
    early, ours = Upsert(writer(two), "early", ["b"]).begin(), writer(two)
    ours.storage = cast(Storage, Watched(two.storage, moments))
    late = Upsert(ours, "late", ["a", "c"])
    lives = False
    with contextlib.suppress(Stop), probe.listening(moments.listen):
        late.begin().write()
        lives = True
    early.write().commit()
    with contextlib.suppress(Stop), probe.listening(moments.listen):
        if lives:
            late.redo()
            late.commit()
    return two, late


def _stop() -> None:
    raise Stop


@pytest.mark.parametrize("end", [recover, roll_back_failed_writes])
def test_whenever_its_driver_dies_a_write_is_part_of_the_table_with_all_its_rows_or_none(
    end: Callable[[HudiTable], object],
) -> None:
    moments = Moments()
    whole = {"a": "late", "b": "early", "c": "late", "d": "first"}
    assert rows(_late_write(moments)[0]) == whole
    found = []
    for number in range(len(moments.seen)):
        two, late = _late_write(Moments(number, _stop))
        dead(late.transaction)
        end(writer(two))
        roll_back_failed_writes(writer(two))  # as each write begins
        upsert(writer(two), "next", ["d"])
        found.append(rows(two))
        assert leftovers(two.storage) == []
    allowed = [{"a": "first", "b": "early", "c": "first", "d": "next"}, {**whole, "d": "next"}]
    assert all(one in allowed for one in found) and all(one in found for one in allowed)


def test_who_closes_the_gate_of_a_driver_that_lives_ends_its_write(two: HudiTable) -> None:
    late = overtaken(two, ["a", "c"], ["b"])
    other = writer(two)
    gate = Control(other, late.transaction.folder).gate()
    assert gate is not None
    late.redo()
    Transaction.of_another(other, late.transaction.folder, gate).finalize(2)
    with pytest.raises(FencedError, match="given up"):
        late.commit()
    assert late.transaction.abort("others have closed its gate") is True
    assert rows(two) == {**AT_FIRST, "b": "early"} and leftovers(two.storage) == []


def test_who_closes_a_gate_that_was_closed_with_more_in_it_does_nothing(two: HudiTable) -> None:
    late = overtaken(two, ["a", "c"], ["b"])
    other = writer(two)
    gate = Control(other, late.transaction.folder).gate()
    assert gate is not None
    late.redo()
    markers = late.finalize()
    with pytest.raises(FencedError, match="given up"):
        Transaction.of_another(other, late.transaction.folder, gate).finalize(2)
    late.transaction.commit(markers)
    late.transaction.clean_up()
    assert rows(two) == {"a": "late", "b": "early", "c": "late", "d": "first"}
    assert leftovers(two.storage) == []


# -- tasks that come late ----------------------------------------------------------------------------------


def test_a_task_of_what_does_not_count_any_more_serves_what_it_was(two: HudiTable) -> None:
    late = overtaken(two, ["a"], ["b"])
    late.redo()
    assert late.attempt(0).reused
    late.commit()
    assert rows(two) == {**AT_FIRST, "a": "late", "b": "early"} and leftovers(two.storage) == []


def _redone(late: Upsert) -> None:
    assert late.redo() == {0: 1}


def _committed(late: Upsert) -> None:
    _redone(late)
    late.transaction.commit(late.finalize())


@pytest.mark.parametrize("meanwhile", [_redone, _committed])
def test_a_task_of_it_that_has_slept_over_its_files_throws_them_away(
    two: HudiTable, meanwhile: Callable[[Upsert], None]
) -> None:
    early = Upsert(writer(two), "early", ["b"]).begin()
    late = Upsert(writer(two), "late", ["a"]).begin()

    def others_go_on() -> None:
        late.write()
        early.write().commit()
        meanwhile(late)

    with probe.listening(at(Point.FILES_STAGED, others_go_on)), contextlib.suppress(FencedError):
        late.attempt(0)
    if late.transaction.done is None:
        late.transaction.commit(late.finalize())
    late.transaction.clean_up()
    assert late.attempts == [0, 0, 1]
    assert rows(two) == {**AT_FIRST, "a": "late", "b": "early"} and leftovers(two.storage) == []
