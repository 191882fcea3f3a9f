"""Which slots of a write are done again when others were faster, and when the whole write has to be."""

from __future__ import annotations

from itertools import product

import pytest

from sparkrobust.core.conflicts import Conflict, FileGroup, Taken, find_conflicts
from sparkrobust.core.file_ids import Slot
from sparkrobust.core.instant import Action, Instant, InstantTime, State
from sparkrobust.core.names import BaseFileName
from sparkrobust.core.redo import Reads, Since, done_last, in_place, may_redo
from sparkrobust.core.view import BaseFile
from sparkrobust.core.write_status import OperationType

ME = InstantTime("50")
A, B, C = ("p", "a-0"), ("p", "b-0"), ("q", "c-0")
UPSERT = Since(operation=OperationType.UPSERT, same_schema=True)


def instant(time: int, action: Action = Action.COMMIT, state: State = State.COMPLETED) -> Instant:
    done = InstantTime("60") if state is State.COMPLETED else None
    return Instant(time=InstantTime(str(time)), action=action, state=state, completion=done)


def conflict(time: int, *groups: FileGroup, **more: object) -> Conflict:
    taken = Taken(instant=instant(time, **more), groups=frozenset(groups))  # type: ignore[arg-type]
    return Conflict(other=taken, groups=tuple(sorted(groups)))


def base(group: FileGroup, time: int) -> BaseFile:
    name = BaseFileName(file_id=group[1], write_token="0-0-0", instant=InstantTime(str(time)))
    return BaseFile(partition=group[0], name=name, size=1)


def slot(index: int, group: FileGroup, time: int | None = 10) -> Slot:
    found = None if time is None else base(group, time)
    return Slot(index=index, partition=group[0], base=found, prefix=group[1])


# -- whether it helps --------------------------------------------------------------------------------------


def test_it_helps_a_write_that_was_overtaken_by_plain_writes_that_began_before_it() -> None:
    for reads in (Reads.NOTHING, Reads.WHICH_KEYS_ARE_NEW):
        assert may_redo(ME, reads, [conflict(40, A), conflict(49, A, B)], [UPSERT, UPSERT])


def test_a_write_that_goes_by_more_than_its_file_groups_and_its_new_keys_is_made_again_as_a_whole() -> None:
    assert not may_redo(ME, Reads.MORE, [conflict(40, A)], [UPSERT])


@pytest.mark.parametrize(("action", "state"), list(product(Action, State)))
def test_only_completed_commits_are_got_past(action: Action, state: State) -> None:
    plain = (action, state) == (Action.COMMIT, State.COMPLETED)
    for reads in (Reads.NOTHING, Reads.WHICH_KEYS_ARE_NEW):
        conflicts = [conflict(41, B), conflict(40, A, action=action, state=state)]
        assert may_redo(ME, reads, conflicts, [UPSERT]) is plain


@pytest.mark.parametrize("time", [50, 51, 99])
def test_behind_a_write_that_began_later_nobody_would_see_what_is_done_again(time: int) -> None:
    assert not may_redo(ME, Reads.NOTHING, [conflict(40, A), conflict(time, B)], [UPSERT])


def test_a_conflict_about_the_whole_table_is_not_about_file_groups() -> None:
    assert not may_redo(ME, Reads.NOTHING, [conflict(40)], [UPSERT])


@pytest.mark.parametrize("operation", [*OperationType, None])
def test_keys_stay_where_they_were_found_only_if_nobody_inserted_any_that_the_table_has(
    operation: OperationType | None,
) -> None:
    apart = operation is not None and operation.value.removesuffix("_PREPPED") in {
        *("UPSERT", "DELETE", "CLUSTER", "COMPACT", "LOG_COMPACT")
    }
    # In the way or not: it may be the one that is not that has the key.
    since = [UPSERT, Since(operation=operation, same_schema=True)]
    assert may_redo(ME, Reads.WHICH_KEYS_ARE_NEW, [conflict(40, A)], since) is apart
    assert may_redo(ME, Reads.NOTHING, [conflict(40, A)], since)


@pytest.mark.parametrize("reads", [Reads.NOTHING, Reads.WHICH_KEYS_ARE_NEW])
def test_columns_that_the_write_does_not_know_are_not_lost_by_it(reads: Reads) -> None:
    other = Since(operation=OperationType.UPSERT, same_schema=False)
    assert not may_redo(ME, reads, [conflict(40, A)], [UPSERT, other])


# -- which ones --------------------------------------------------------------------------------------------


def test_only_the_slots_of_the_file_groups_in_question_are_done_again_from_the_newest_files() -> None:
    slots = [slot(0, A), slot(1, B), slot(2, C), slot(3, ("p", "new"), None)]
    newest = {group: base(group, 45) for group in (A, C)}
    found = in_place(slots, set(), [conflict(40, A), conflict(45, A, C)], newest)
    assert found == {0: slot(4, A, 45), 2: slot(5, C, 45)}


def test_what_was_done_again_is_done_again_from_there() -> None:
    slots = [slot(0, A), slot(1, B), slot(2, A, 40)]
    found = in_place(slots, {0}, [conflict(45, A, B)], {A: base(A, 45), B: base(B, 45)})
    assert found == {1: slot(3, B, 45), 2: slot(4, A, 45)}


@pytest.mark.parametrize("newest", [{}, {A: base(A, 10)}, {A: base(A, 40)}, {A: base(A, 46)}])
def test_nothing_is_done_again_from_a_file_that_is_not_what_the_last_of_the_others_wrote(
    newest: dict[FileGroup, BaseFile],
) -> None:
    slots = [slot(0, B), slot(1, A)]
    conflicts = [conflict(45, A, B), conflict(40, A)]
    assert in_place(slots, set(), conflicts, {**newest, B: base(B, 45)}) == {}


def test_a_conflict_about_a_file_group_that_is_new_or_none_of_the_writes_is_not_got_past() -> None:
    slots, newest = [slot(0, A), slot(1, ("p", "b"), None)], {A: base(A, 45), B: base(B, 45)}
    assert in_place(slots, set(), [conflict(45, A)], newest) == {0: slot(2, A, 45)}
    for other in (B, C):
        assert in_place(slots, set(), [conflict(45, A, other)], newest) == {}


def test_the_slot_that_was_done_last_is_the_one_that_counts() -> None:
    superseded = {0: 3, 3: 5, 1: 4}
    assert [done_last(one, superseded) for one in range(6)] == [5, 4, 2, 5, 4, 5]


# -- what stands in the way afterwards ---------------------------------------------------------------------


def taken(time: int, *groups: FileGroup, **more: object) -> Taken:
    return conflict(time, *groups, **more).other


def test_what_a_file_was_made_from_does_not_stand_in_its_way_and_what_came_later_does() -> None:
    others = [taken(40, A), taken(45, A, B), taken(46, A)]
    found = find_conflicts({A, B}, others, {A: "45"})
    assert [(one.other, one.groups) for one in found] == [(others[1], (B,)), (others[2], (A,))]


@pytest.mark.parametrize(("action", "state"), list(product(Action, State)))
def test_what_is_pending_and_what_takes_file_groups_away_is_in_no_file(action: Action, state: State) -> None:
    plain = (action, state) == (Action.COMMIT, State.COMPLETED)
    found = find_conflicts({A}, [taken(40, A, action=action, state=state)], {A: "45"})
    assert (found == []) is plain


def test_another_file_group_of_the_same_bucket_is_in_no_file_of_this_one() -> None:
    mine, theirs = ("p", "00000003-a"), ("p", "00000003-b")
    found = find_conflicts({mine}, [taken(40, theirs), taken(41, mine)], {mine: "45"})
    assert [(one.other.instant.time, one.groups) for one in found] == [("40", (mine,))]


def test_a_write_that_replaces_the_table_is_in_everybodys_way_whatever_was_made_from_what() -> None:
    assert len(find_conflicts(None, [taken(40, A)], {A: "45"})) == 1
