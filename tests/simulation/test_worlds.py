"""The simulated world: reproducible, quiet where all is well, and loud about every known mistake."""

from __future__ import annotations

import pytest

from fault_injection.faults import Fault
from fault_injection.simulation.bugs import BUGS, with_bug
from fault_injection.simulation.runs import run
from fault_injection.simulation.scenarios import CALM, DIRECT, SCENARIOS, STORES
from fault_injection.simulation.scheduler import Choices

WORLDS = 300
OF_WRITERS_THAT_SHARE = 60
"""Fewer, since each takes longer; `make simulate` runs more of each."""
MOST_TO_FIND_A_BUG = 4000

TOLD_BY = {
    "commit file put plainly": "archived-while-asleep",
    "commit file linked": "archived-while-asleep",
    "blind sweep": "archived-while-asleep",
    "negative gate": "late-tasks",
    "copied without a turn": "source-left-behind",
    "a turn without a look": "source-left-behind",
    "a turn that leaves the others": "source-left-behind",
    "no nonce": "same-time-again",
    "file groups are not compared": "one-row",
    "groups that are gone are not missed": "cleaned-while-asleep",
    "what is archived is forgotten": "cleaned-while-asleep",
    "keys are not compared": "one-new-key",
    "done again from the old file": "overtaken",
    "done again behind a later write": "overtaken",
    "pending plans are not compared": "services",
    "nobody lives": "one-row",
    "who loses the lock goes on": "one-new-key",
    "executed by two": "services",
}
"""The story that shows a mistake soonest, where that is not just any."""


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_seed_gives_the_same_world_to_the_letter(scenario: str) -> None:
    for seed in range(10):
        first, second = run(seed, scenario), run(seed, scenario)
        assert first.log == second.log and first.log
        assert [vars(told) for told in first.told] == [vars(told) for told in second.told]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_no_world_violates_anything_though_everything_happens_in_them(scenario: str) -> None:
    shared = SCENARIOS[scenario](Choices(0)).settings.sharing is not None
    reports = [run(seed, scenario) for seed in range(OF_WRITERS_THAT_SHARE if shared else WORLDS)]
    assert [(report.seed, report.violation) for report in reports if report.violation] == []
    if scenario == "any":
        assert {report.store for report in reports} == set(STORES)
        assert {fault for report in reports for fault in report.injected} == set(Fault) - {Fault.NONE}
        outcomes = {told.outcome for report in reports for told in report.told}
        assert outcomes == {"committed", "failed", "unknown", "nothing"}


def test_writers_that_are_overtaken_do_slots_again_and_not_always_the_whole_write() -> None:
    told = [one for seed in range(OF_WRITERS_THAT_SHARE) for one in run(seed, "overtaken").told]
    committed = [one for one in told if one.outcome == "committed"]
    assert sum(one.redone > 0 for one in committed) > 5
    assert any("again" in one.name for one in committed)


@pytest.mark.parametrize("scenario", DIRECT)
def test_in_mode_direct_rows_are_doubled_only_where_a_folder_can_not_be_taken_from_late_tasks(
    scenario: str,
) -> None:
    violations = [report.violation for report in (run(seed, scenario) for seed in range(WORLDS))]
    found = {violation.partition(":")[2].partition(":")[0] for violation in violations if violation}
    assert found == (set() if scenario.endswith("disk") else {" files and commits differ"})


@pytest.mark.parametrize("bug", BUGS)
def test_a_mistake_in_the_protocol_is_found(bug: str) -> None:
    with with_bug(bug):
        for seed in range(MOST_TO_FIND_A_BUG):
            if run(seed, TOLD_BY.get(bug, "any")).violation is not None:
                return
    pytest.fail(f"{MOST_TO_FIND_A_BUG} worlds did not notice: {bug}")


def test_a_bug_is_gone_when_its_block_ends() -> None:
    with with_bug("no decision object"):
        assert run(0).violation is not None
    assert run(0).violation is None


@pytest.mark.parametrize("scenario", CALM)
def test_a_calm_world_is_calm_but_for_the_driver_that_is_meant_to_die(scenario: str) -> None:
    report = run(0, scenario)
    assert report.violation is None
    first, *others = [told.outcome for told in report.told if not told.name.startswith("founder")]
    dies = any(word in scenario for word in ("rollback", "rolling", "recovery", "sweeping"))
    assert first == ("nothing" if dies else "failed" if "conflict" in scenario else "committed")
    assert set(others) == {"committed"}
    # Of what a dead one's write has changed too, once that is finished, the slots are done again as well.
    again = scenario.startswith(("slots done again", "rolling forward under a shared lock"))
    assert sum(told.redone for told in report.told) == again
