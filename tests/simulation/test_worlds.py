"""The simulated world: reproducible, quiet where all is well, and loud about every known mistake."""

from __future__ import annotations

import pytest

from fault_injection.simulation.bugs import BUGS, with_bug
from fault_injection.simulation.runs import run
from fault_injection.simulation.scheduler import Fault

SEEDS = range(400)
MOST_TO_FIND_A_BUG = 1500


def test_a_seed_gives_the_same_world_to_the_letter() -> None:
    for seed in range(20):
        first, second = run(seed), run(seed)
        assert first.log == second.log and first.log
        assert [vars(told) for told in first.told] == [vars(told) for told in second.told]


def test_no_world_violates_anything_though_everything_happens_in_them() -> None:
    reports = [run(seed) for seed in SEEDS]
    assert [(report.seed, report.violation) for report in reports if report.violation] == []
    assert {report.store for report in reports} == {"disk", "bucket"}
    assert {fault for report in reports for fault in report.injected} == set(Fault) - {Fault.NONE}
    outcomes = {told.outcome for report in reports for told in report.told}
    assert outcomes == {"committed", "failed", "unknown", "nothing"}


@pytest.mark.parametrize("bug", BUGS)
def test_a_mistake_in_the_protocol_is_found(bug: str) -> None:
    with with_bug(bug):
        for seed in range(MOST_TO_FIND_A_BUG):
            if run(seed).violation is not None:
                return
    pytest.fail(f"{MOST_TO_FIND_A_BUG} worlds did not notice: {bug}")
