"""What is drawn for a random write, and what is promised of it then."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from fault_injection.spark import faults as f
from fault_injection.spark.faults import Fault, at
from fault_injection.spark.jobs import Expected
from fault_injection.spark.random_plans import MOST_TIMES_BUSY, REQUESTS, Course, Perils, Plan, drawn
from fault_injection.spark.report import Injected, Outcome, Reaction, Report

ALL = Perils(partitions=True, store=True, sealed="/disk", filled="/disk")


def plans(perils: Perils = ALL, rows: int = 400) -> Iterator[Plan]:
    table = Expected()
    table.write("insert", 0, rows, 1)
    return (drawn(random.Random(f"{seed}"), table, perils) for seed in range(2000))


def test_the_same_number_draws_the_same_write_and_faults() -> None:
    assert list(plans()) == list(plans())


def test_faults_are_the_same_whatever_the_table_holds() -> None:
    assert [plan.faults for plan in plans()] == [plan.faults for plan in plans(rows=3)]


def test_the_first_fault_is_one_that_every_write_meets() -> None:
    moments = [plan.faults[0].when for plan in plans()]
    assert all(isinstance(when, f.At) and when.nth == 1 for when in moments)


def test_a_driver_that_sleeps_wakes_whatever_becomes_of_its_tasks() -> None:
    asleep = [fault for plan in plans() for fault in plan.faults if isinstance(fault.deed, f.FreezeDriver)]
    assert asleep and all(fault.longest < 10 for fault in asleep)


def test_a_store_is_never_away_and_answers_who_begins_an_upload() -> None:
    faults = [fault for plan in plans() for fault in plan.faults if isinstance(fault.deed, f.OF_THE_STORE)]
    asked = {str(fault.when.facts) for fault in faults if isinstance(fault.when, f.At)}
    assert asked == {str(one.facts) for one in REQUESTS.values()}
    assert all(isinstance(fault.when, f.At) and fault.when.times <= MOST_TIMES_BUSY for fault in faults)


def test_what_a_table_can_not_meet_is_not_drawn() -> None:
    found = {type(fault.deed) for plan in plans(Perils()) for fault in plan.faults}
    assert found.isdisjoint({f.Partition, f.Seal, f.FillDisk, *f.OF_THE_STORE})


# -- what is promised ------------------------------------------------------------------------------------

KILLED, DONE = Outcome(killed=True), Outcome(value={})
LATE = Fault("zombie", at("file begun", "task"), f.Partition())


def course(*faults: Fault, outcome: Outcome = KILLED, copies: bool = False, perils: Perils = ALL) -> Course:
    """One in which all of these faults have happened."""
    injected = tuple(
        Injected(fault=fault.name, seconds=1, what="", deed=type(fault.deed).__name__) for fault in faults
    )
    report = Report(outcome=outcome, injected=injected, notes={}, reaction=Reaction(), seconds=2)
    plan = Plan(operation="upsert", first=0, end=1, how="plain", options={}, faults=faults)
    return Course(plan=plan, report=report, copies=copies, perils=perils)


def dies(when: f.At) -> Fault:
    return Fault("driver", when, f.KillDriver())


@pytest.mark.parametrize(
    ("when", "fates"),
    [
        (at("commit staged", "driver"), (False,)),
        (at("decided", "driver"), (True,)),
        (at("files staged", "task"), (False,)),
        (REQUESTS["a completion marker"], (False,)),
        (REQUESTS["the decision"], (True,)),
    ],
)
def test_a_driver_that_is_killed_has_committed_if_it_has_decided(when: f.At, fates: tuple[bool, ...]) -> None:
    assert course(dies(when)).fates == fates
    # One that comes late comes to a task's point, and asks a task's requests, whatever the driver has done.
    a_task_is_there = when.who == "task" or when == REQUESTS["a completion marker"]
    assert course(dies(when), LATE).fates == ((False, True) if a_task_is_there else fates)


def test_a_write_fails_by_a_disk_alone_and_says_so() -> None:
    full = Fault("disk", at("file begun", "task"), f.FillDisk("/disk"))
    for error, fates in {
        "StorageFullError": (False,),
        "CommitUnknownError": (False, True),
        "ConflictError": (),
    }.items():
        assert course(full, outcome=Outcome(error=error)).fates == fates
        assert course(LATE, outcome=Outcome(error=error)).fates == ()


def test_a_write_that_succeeds_leaves_nothing_but_where_a_store_takes_what_comes_late() -> None:
    again = Fault("again", at("decided", "driver"), f.RunAgain())
    assert course(again, outcome=DONE).traces == ()
    assert course(LATE, outcome=DONE).traces == (".robust", ".temp")
    assert course(LATE, outcome=DONE, perils=Perils(partitions=True)).traces == ()


def test_an_upload_may_stay_only_where_nobody_could_tell_of_it() -> None:
    raises = Fault("raises", at("file begun", "task"), f.Raise())
    assert not course(raises, outcome=DONE).may_leave_an_empty_upload
    assert course(LATE, outcome=DONE).may_leave_an_empty_upload
