"""Small worlds, everywhere: nothing is wrong in them, every known mistake is, and counting is honest."""

from __future__ import annotations

import pytest

from fault_injection.exhaustive.explore import Explorer, explore
from fault_injection.exhaustive.lives import Lives, Process, SmallWorld, no_memory
from fault_injection.exhaustive.worlds import OF_THE_MODEL, QUICK, SMALL
from fault_injection.simulation.bugs import BUGS, with_bug

FOUND_IN = {
    "marker before sync": ("a write, on a disk",),
    "publish before marker": ("a write, on a disk", "a write, on a bucket"),
    "no decision object": ("its rollback, on a disk", "its rollback, on a bucket"),
    "rollback without abort": ("its rollback, on a disk",),
    "no look after deciding": ("archived by us, on a bucket",),
    "commit file put plainly": ("archived by us, on a bucket",),
    "commit file linked": ("archived by us, on a disk",),
    "blind sweep": ("archived by Hudi, on a disk", "archived by Hudi, on a bucket"),
    "parents made by tasks": ("its rollback, on a disk",),
    "negative gate": ("its rollback, on a disk", "its rollback, on a bucket"),
    "control files in temp": ("a write, on a disk", "a write, on a bucket"),
    "a failed write says nothing to the others": ("its rollback, given up, on a disk",),
    "no nonce": ("begun again, on a disk", "begun again, on a bucket"),
}
"""Not these: a slot too few takes two slots, two take three drivers on a bucket, three a copying store."""


def test_a_small_world_is_gone_through_whole_and_gives_the_same_counts_again() -> None:
    first, second = (explore(SMALL["a write, on a disk"].make) for _ in range(2))
    assert first.complete and first.violation is None
    assert (first.states, first.edges, first.tables, first.moments) == (
        second.states,
        second.edges,
        second.tables,
        second.moments,
    )
    assert first.states > 900 and first.edges > first.states


@pytest.mark.parametrize(
    "name",
    [
        "a write, on a bucket",
        "its rollback, on a bucket",
        "begun again, on a disk",
        "rolled back by Hudi, on a bucket",
    ],
)
def test_nothing_is_wrong_anywhere_in_the_smallest_worlds(name: str) -> None:
    found = explore(QUICK[name].make)
    assert found.violation is None and found.complete
    assert found.states >= OF_THE_MODEL.get(name, 0)


@pytest.mark.parametrize(
    "name, world", [(name, world) for name, worlds in FOUND_IN.items() for world in worlds]
)
def test_a_mistake_that_the_model_knows_is_found_with_the_way_to_it(name: str, world: str) -> None:
    with with_bug(name):
        found = explore(SMALL[world].make)
    assert found.violation is not None and not found.complete
    assert found.trace


def test_only_mistakes_that_need_more_than_a_small_world_are_left_to_the_others() -> None:
    assert set(BUGS) - set(FOUND_IN) == {
        "a slot without a marker is taken for an empty one",
        "decision read again",
        "the decision is removed first",
        "completion markers are removed unread",
        "copied without a turn",
        "a turn without a look",
        "a turn that leaves the others",
        "staged commits are removed unread",
        # A small world has no writers that know of each other.
        "file groups are not compared",
        "keys are not compared",
        "done again from the old file",
        "done again behind a later write",
        "pending plans are not compared",
        "nobody lives",
        "who loses the lock goes on",
        "executed by two",
        "groups that are gone are not missed",
        "what is archived is forgotten",
    }


def test_time_that_is_over_ends_the_search_and_says_so() -> None:
    found = explore(SMALL["two attempts, rollback, on a disk"].make, minutes=0)
    assert not found.complete and found.violation is None and found.states


@pytest.mark.parametrize("name", ["a write that is given up, on a disk", "begun again, on a bucket"])
def test_moments_that_are_taken_for_one_lead_nowhere_else(name: str) -> None:
    """Without merging them there are more states, and the table gets into the same ones."""
    merged, apart = SMALL[name].make(), SMALL[name].make()
    apart.lives.merges = False
    counts, contents = [], []
    for world in (merged, apart):
        with no_memory():
            found = Explorer(world).run(None)
        assert found.complete
        counts.append(found.states)
        contents.append(set(map(world.tables.content, range(len(world.tables)))))
    assert contents[0] == contents[1]
    assert counts[0] < counts[1]


@pytest.mark.parametrize("where", ["", "in a loop", "in an expression"])
def test_what_code_holds_besides_its_variables_tells_moments_apart(where: str) -> None:
    """Iterators and half-computed expressions are no variables, and yet a part of the state."""
    world = SmallWorld()

    def ask(what: str) -> str:
        return world.call("ask", what, lambda: "", changes=False)

    def loop() -> object:
        for part in ask("first"):
            part = ""
            ask("then")
        return part

    def expression() -> object:
        return ask("first"), ask("then")

    def plain() -> object:
        ask("first")
        return ask("then")

    lives = Lives(world)
    run = {"": plain, "in a loop": loop, "in an expression": expression}[where]
    first = lives.first(Process(name="one", run=run, number=1))
    one, other = (lives.after(first, answer) for answer in ("ab", "a"))
    assert one.call == other.call == "ask then"
    assert (one is other) is (where == "")
    lives.end()
