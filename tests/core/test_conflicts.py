"""Which instants a write is held against (RFC-71)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from sparkrobust.core.conflicts import (
    NOTHING,
    PENDING,
    Begun,
    Held,
    Strategy,
    Taken,
    Work,
    completed_candidates,
    find_conflicts,
    is_held_against,
    pending_candidates,
    work_of,
)
from sparkrobust.core.instant import Action, Instant, InstantTime, State
from sparkrobust.core.timeline import Timeline


def instant(time: int, action: Action = Action.COMMIT, *, done: int = 0) -> Instant:
    state = State.COMPLETED if done else State.INFLIGHT
    completion = InstantTime(f"{done:03}") if done else None
    return Instant(time=InstantTime(f"{time:03}"), action=action, state=state, completion=completion)


def times(instants: Iterator[Instant]) -> set[int]:
    return {int(one.time) for one in instants}


# -- what was completed meanwhile --------------------------------------------------------------------------

# The five situations of the RFC's second figure, of a write that is planned at 50.
BEFORE, DURING, STILL, AFTER, NEW = 10, 20, 30, 60, 70


@pytest.mark.parametrize("strategy", Strategy)
def test_completed_candidates_are_those_that_were_completed_since_and_no_others(strategy: Strategy) -> None:
    then = Timeline((instant(BEFORE, done=15), instant(DURING), instant(STILL)))
    now = Timeline(
        (
            instant(BEFORE, done=15),
            instant(DURING, done=80),
            instant(STILL),
            instant(AFTER, done=81),
            instant(NEW),
        )
    )
    assert times(completed_candidates(strategy, now.completed_writes, Begun.at(then))) == {DURING, AFTER}


def histories(writes: int) -> Iterator[tuple[list[str], int]]:
    """Every order in which writes may begin and end or stay pending, and every place of a plan in it."""
    for ends in itertools.product((True, False), repeat=writes):
        events = [f"begin {n}" for n in range(writes)] + [f"end {n}" for n in range(writes) if ends[n]]
        for order in itertools.permutations(events):
            begun = {
                event.split()[1]: place for place, event in enumerate(order) if event.startswith("begin")
            }
            ended = {event.split()[1]: place for place, event in enumerate(order) if event.startswith("end")}
            if all(begun[n] < place for n, place in ended.items()):
                for planned in range(len(order) + 1):
                    yield list(order), planned


def timeline_after(order: list[str], count: int) -> Timeline:
    """What stands there after so many events, each at a later time than all before it."""
    begun: dict[str, int] = {}
    found: dict[str, Instant] = {}
    for place, event in enumerate(order[:count], start=1):
        what, n = event.split()
        if what == "begin":
            begun[n] = place
        found[n] = instant(begun[n], done=place if what == "end" else 0)
    return Timeline(tuple(sorted(found.values(), key=lambda one: one.time)))


def test_in_every_history_of_three_writes_both_strategies_find_what_the_plan_did_not_know() -> None:
    seen = 0
    for order, planned in histories(3):
        then, now = timeline_after(order, planned), timeline_after(order, len(order))
        unknown = times(iter(now.completed_writes)) - times(iter(then.completed_writes))
        for strategy in Strategy:
            found = times(completed_candidates(strategy, now.completed_writes, Begun.at(then)))
            assert found == unknown, (order, planned, strategy)
            seen += 1
    assert seen > 2000


def test_a_plan_that_knew_nothing_has_everything_against_it() -> None:
    now = Timeline((instant(1, done=2), instant(3, done=4)))
    for strategy in Strategy:
        assert times(completed_candidates(strategy, now.completed_writes, NOTHING)) == {1, 3}


def test_an_instant_without_a_time_of_completion_counts_by_its_own() -> None:
    old = Instant(time=InstantTime("60"), action=Action.COMMIT, state=State.COMPLETED)
    begun = Begun(newest="50", pending=frozenset())
    assert times(completed_candidates(Strategy.COMPLETION_TIME, (old,), begun)) == {60}


# -- what is pending ---------------------------------------------------------------------------------------

# RFC-71, "chooseFromPendingInstants": a row for who commits, a column for what is pending then.
TRANSCRIPT = """
            | ingestion                  | clustering                 | compaction
ingestion   | no                         | no if allowed, else yes    | yes
clustering  | yes if allowed, else no    | no                         | no
compaction  | -                          | -                          | -
"""
MEANT = {
    "no": Held.NO,
    "yes": Held.YES,
    "yes if allowed, else no": Held.IF_UPDATES_ALLOWED,
    "no if allowed, else yes": Held.UNLESS_UPDATES_ALLOWED,
    "-": Held.NEVER_ASKED,
}


def cells() -> dict[tuple[Work, Work], Held]:
    head, *rows = ([cell.strip() for cell in line.split("|")] for line in TRANSCRIPT.strip().splitlines())
    return {
        (Work(row[0]), Work(column)): MEANT[cell]
        for row in rows
        for column, cell in zip(head[-3:], row[1:], strict=True)
    }


def test_the_table_of_pending_work_is_the_rfcs() -> None:
    assert dict(PENDING) == cells()
    assert len(PENDING) == len(Work) ** 2


@pytest.mark.parametrize(("mine", "pending"), list(itertools.product(Work, Work)))
def test_each_cell_says_who_is_looked_at(mine: Work, pending: Work) -> None:
    held = cells()[mine, pending]
    if held is Held.NEVER_ASKED:
        with pytest.raises(ValueError, match="when it is scheduled"):
            is_held_against(mine, pending, updates_allowed=False)
        return
    found = [is_held_against(mine, pending, updates_allowed=allowed) for allowed in (False, True)]
    wanted = {
        Held.NO: [False, False],
        Held.YES: [True, True],
        Held.IF_UPDATES_ALLOWED: [False, True],
        Held.UNLESS_UPDATES_ALLOWED: [True, False],
    }
    assert found == wanted[held]


def test_of_what_is_pending_a_write_looks_at_clusterings_and_compactions_alone() -> None:
    pending = Timeline(tuple(instant(number, action) for number, action in enumerate(Action, start=1)))
    found = {one.action for one in pending_candidates(pending, Work.INGESTION, InstantTime("999"))}
    assert found == {Action.CLUSTERING, Action.COMPACTION, Action.LOG_COMPACTION}
    allowed = pending_candidates(pending, Work.INGESTION, InstantTime("999"), updates_allowed=True)
    assert {one.action for one in allowed} == {Action.COMPACTION, Action.LOG_COMPACTION}


def test_a_clustering_that_gives_way_looks_at_every_pending_write_but_itself() -> None:
    pending = Timeline((instant(1), instant(2, Action.CLUSTERING), instant(3, Action.REPLACE_COMMIT)))
    me = InstantTime("002")
    assert times(pending_candidates(pending, Work.CLUSTERING, me, updates_allowed=True)) == {1, 3}
    assert times(pending_candidates(pending, Work.CLUSTERING, me)) == set()


def test_completed_instants_are_no_pending_candidates() -> None:
    assert (
        times(pending_candidates(Timeline((instant(1, done=2),)), Work.INGESTION, InstantTime("9"))) == set()
    )


def test_work_on_file_groups_is_known_for_every_action() -> None:
    known = {action: work_of(instant(1, action)) for action in Action}
    assert {action for action, work in known.items() if work is None} == {
        Action.CLEAN,
        Action.ROLLBACK,
        Action.SAVEPOINT,
        Action.RESTORE,
        Action.INDEXING,
    }


# -- what stands in the way --------------------------------------------------------------------------------

A, B, C = ("p", "a"), ("p", "b"), ("q", "a")


def taken(time: int, *groups: tuple[str, str]) -> Taken:
    return Taken(instant=instant(time, done=time + 1), groups=frozenset(groups))


def test_every_conflict_is_found_with_all_its_file_groups() -> None:
    others = [taken(1, A, B), taken(3, C), taken(5, B)]
    found = find_conflicts({A, B}, others, {})
    assert [(int(one.other.instant.time), one.groups) for one in found] == [(1, (A, B)), (5, (B,))]


def test_the_same_id_in_another_partition_is_another_file_group() -> None:
    assert find_conflicts({A}, [taken(1, C)], {}) == []


def test_a_write_that_replaces_the_table_conflicts_with_whatever_there_is() -> None:
    found = find_conflicts(None, [taken(1), taken(3, A)], {})
    assert [one.groups for one in found] == [(), ()]


def test_a_write_that_changes_nothing_that_was_there_conflicts_with_nobody() -> None:
    assert find_conflicts(set(), [taken(1, A)], {}) == []


def test_two_file_groups_of_one_bucket_are_one_whoever_made_them() -> None:
    mine, theirs = (("p", f"0000000{n}-2d67-4f22-9a21-e38d0456cb52-0") for n in (3, 4))
    of_bucket_3 = ("p", "00000003-0000-0000-0000-000000000000-0")
    found = find_conflicts({mine, theirs}, [taken(1, of_bucket_3), taken(3, ("q", mine[1]))], {})
    assert [(int(one.other.instant.time), one.groups) for one in found] == [(1, (mine,))]


@pytest.mark.parametrize(
    "mine, other",
    [
        ("0000000a-2d67-4f22-9a21-e38d0456cb52-0", "0000000a-b8bf-402f-a1b5-0f21d3e3a136-0"),
        ("000000031-2d67", "000000031-b8bf"),
        ("00000003", "00000003-"),
        ("0000003-2d67", "0000003-b8bf"),
    ],
)
def test_ids_that_name_no_bucket_are_compared_whole(mine: str, other: str) -> None:
    assert find_conflicts({("p", mine)}, [taken(1, ("p", other))], {}) == []
    assert find_conflicts({("p", mine)}, [taken(1, ("p", mine))], {}) != []
