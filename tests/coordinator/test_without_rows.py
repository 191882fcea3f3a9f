"""Of a slot that no rows came to no task tells: where rows are counted the driver says that it is done."""

from __future__ import annotations

import pytest

from sparkrobust import probe
from sparkrobust.coordinator.recovery import Fate, recover
from sparkrobust.coordinator.rollback import roll_back_failed_writes
from sparkrobust.coordinator.table import HudiTable
from sparkrobust.core.markers import Fingerprint
from sparkrobust.core.redo import Reads
from sparkrobust.errors import FencedError, IndeterminateInputError
from sparkrobust.probe import Point
from sparkrobust.storage.contract import NotFoundError
from tests.coordinator.upserts import Upsert, rows, upsert
from tests.coordinator.writers import writer
from tests.coordinator.writes import data_files, dead, leftovers, opened
from tests.moments import at

FIRST = dict.fromkeys("ab", "first")


@pytest.fixture
def one(table: HudiTable) -> HudiTable:
    """A table with one file group, of the keys a and b."""
    upsert(table, "first", ["a", "b"])
    return table


def of_two_slots(table: HudiTable, *, counted: bool = True) -> Upsert:
    """A write of one file group that is there, and one that is new; the task of the first one has ended."""
    return Upsert(table, "late", ["a", "c"]).begin(counted=counted).write([0])


def together(count: int) -> list[tuple[frozenset[int], Fingerprint]]:
    """Both slots together are to get so many rows; which of them go where is not known."""
    return [(frozenset({0, 1}), Fingerprint(rows=count))]


def test_a_write_one_slot_of_which_got_no_rows_commits_the_others(one: HudiTable) -> None:
    write = of_two_slots(one)
    markers = write.transaction.finalize(2, {1})
    assert [(marker.slot, marker.input.rows, len(marker.files)) for marker in markers] == [
        (0, 1, 1),
        (1, 0, 0),
    ]
    write.transaction.compare(markers, together(1))
    write.transaction.commit(markers)
    write.transaction.clean_up()
    assert rows(one) == {**FIRST, "a": "late"} and leftovers(one.storage) == []


@pytest.mark.parametrize("compared", [True, False])
def test_what_a_dead_driver_has_of_such_a_write_others_commit_only_once_it_has_compared_the_rows(
    one: HudiTable, compared: bool
) -> None:
    write = of_two_slots(one)
    markers = dead(write.transaction).finalize(2, {1})
    if compared:
        write.transaction.compare(markers, together(1))
    (found,) = recover(opened(one))
    assert found.fate is (Fate.COMMITTED if compared else Fate.ROLLED_BACK)
    assert rows(one) == {**FIRST, **({"a": "late"} if compared else {})}


def test_a_slot_whose_task_was_lost_is_not_committed_as_one_without_rows(one: HudiTable) -> None:
    write = of_two_slots(one)
    markers = write.transaction.finalize(2, {1})
    with pytest.raises(
        IndeterminateInputError, match="a set of 2 slots was given 2 rows at first, and 1 rows"
    ):
        write.transaction.compare(markers, together(2))
    (found,) = recover(opened(one), even_alive=True)
    assert found.fate is Fate.ROLLED_BACK
    assert rows(one) == FIRST and leftovers(one.storage) == []


@pytest.mark.parametrize("counted", [True, False])
def test_without_counted_rows_or_unless_it_may_have_none_a_slot_that_was_not_done_fails_its_write(
    one: HudiTable, counted: bool
) -> None:
    write = of_two_slots(one, counted=counted)
    with pytest.raises(IndeterminateInputError, match="of 1 file groups did not come"):
        write.transaction.finalize(2, {0} if counted else {1})
    with pytest.raises(NotFoundError):
        one.storage.read(write.transaction.folder.completion(1))


def test_an_attempt_that_ends_after_its_slot_was_found_without_rows_loses_and_leaves_nothing(
    one: HudiTable,
) -> None:
    write = of_two_slots(one)

    def end() -> None:
        markers = write.transaction.finalize(2, {1})
        write.transaction.compare(markers, together(1))
        write.transaction.commit(markers)

    with probe.listening(at(Point.FILES_STAGED, end)):
        problem = write.attempt(1).problem
    assert problem is not None and problem[1].startswith("slot 1 was given 0 rows")
    write.transaction.clean_up()
    assert rows(one) == {**FIRST, "a": "late"} and leftovers(one.storage) == []
    assert len(data_files(one.storage)) == 2


def test_what_an_attempt_has_done_stands_though_no_task_told_of_it(one: HudiTable) -> None:
    write = of_two_slots(one).write([1])
    markers = write.transaction.finalize(2, {1})
    assert [marker.input.rows for marker in markers] == [1, 1]
    with pytest.raises(IndeterminateInputError, match="and 2 rows"):
        write.transaction.compare(markers, together(1))
    write.transaction.compare(markers, together(2))
    write.transaction.commit(markers)
    assert rows(one) == {**FIRST, "a": "late", "c": "late"}


def test_a_slot_without_rows_that_others_are_in_the_way_of_has_none_the_second_time_either(
    one: HudiTable,
) -> None:
    early = Upsert(writer(one), "early", ["a"]).begin()
    late = Upsert(writer(one), "late", ["a", "c"]).begin(counted=True).write([1])
    early.write().commit()
    (new,) = late.transaction.redo(late.slots, Reads.WHICH_KEYS_ARE_NEW).values()
    assert new.index == 2
    markers = late.transaction.finalize(3, {0, 2})
    assert [marker.slot for marker in markers] == [1, 2]
    late.transaction.compare(markers, together(1))
    late.transaction.commit(markers)
    late.transaction.clean_up()
    assert rows(one) == {"a": "early", "b": "first", "c": "late"} and leftovers(one.storage) == []


def test_a_driver_whose_write_was_rolled_back_says_of_no_slot_that_it_is_done(one: HudiTable) -> None:
    write = of_two_slots(one)
    with (
        probe.listening(at(Point.GATE_CLOSED, lambda: roll_back_failed_writes(opened(one)))),
        pytest.raises(FencedError),
    ):
        write.transaction.finalize(2, {1})
    write.transaction.abort("it was given up")
    assert rows(one) == FIRST and leftovers(one.storage) == []
