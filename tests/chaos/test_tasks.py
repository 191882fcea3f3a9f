"""Whatever becomes of tasks and executors, each row is in the table once, and nothing lies about."""

from __future__ import annotations

import pytest

from fault_injection.spark import plain_reader
from fault_injection.spark.chaos import Chaos
from fault_injection.spark.faults import (
    At,
    ExitWorker,
    Fault,
    FillDisk,
    Hold,
    KillExecutor,
    LoseShuffle,
    Outlive,
    Partition,
    Raise,
    RunAgain,
    at,
    stage_starts,
)
from fault_injection.spark.places import why_no_namespaces
from fault_injection.spark.running import FaultNeverHappenedError
from tests.chaos.conftest import ROWS, Table, by_turns, checkered, turn

pytest_plugins = ["fault_injection.pytest_plugin"]

POINTS = ("gate seen", "file begun", "files staged", "slot done")
"""Where an attempt at a slot comes to, in their order."""

needs_namespaces = pytest.mark.skipif(
    bool(why_no_namespaces()), reason=f"no host can be cut off: {why_no_namespaces()}"
)


@pytest.mark.parametrize("point", POINTS)
def test_a_task_that_raises_is_run_again(table: Table, point: str) -> None:
    report = table.write("upsert", 300, 900, Fault("raises", at(point, "task", nth=2), Raise()))
    assert report.reaction.tasks_failed == ("ExceptionFailure",), report
    assert table.is_right()


@pytest.mark.parametrize("point", by_turns(POINTS[1:3]))
def test_a_python_worker_that_exits_is_replaced(table: Table, point: str) -> None:
    report = table.write("upsert", 300, 900, Fault("exits", at(point, "task"), ExitWorker()))
    assert report.reaction.tasks_failed, report
    assert table.is_right()


@pytest.mark.parametrize(("operation", "point"), checkered(["upsert", "bulk_insert", "delete"], POINTS[1:]))
def test_an_executor_that_is_killed_is_replaced(table: Table, operation: str, point: str) -> None:
    first = ROWS if operation == "bulk_insert" else 300
    report = table.write(
        operation, first, first + 600, Fault("killed", at(point, "task", nth=2), KillExecutor())
    )
    assert report.reaction.executors_lost, report
    assert report.outcome.value["slots"]
    assert table.is_right()


def test_a_slot_that_was_done_by_a_task_whose_answer_got_lost_is_not_written_twice(table: Table) -> None:
    report = table.write("upsert", 0, ROWS, Fault("killed", at("slot done", "task"), KillExecutor()))
    assert report.outcome.value["attempts_reused"] >= 1, report
    assert table.is_right() and table.hudi_goes_on()


@needs_namespaces
@pytest.mark.parametrize(
    ("operation", "zombie"),
    checkered(
        ["upsert", "bulk_insert"],
        [("file begun", at("gate closed", "driver")), ("files staged", at("commit published", "driver"))],
    ),
)
def test_a_task_that_is_cut_off_and_wakes_when_its_write_is_over_changes_nothing(
    table: Table, operation: str, zombie: tuple[str, At]
) -> None:
    asleep, until = zombie
    first = ROWS if operation == "bulk_insert" else 300
    fault = Fault("zombie", at(asleep, "task"), Partition(alone=1), until=until)
    report = table.write(operation, first, first + 600, fault)
    assert report.reaction.executors_lost, report
    assert table.is_right() and table.hudi_goes_on()


@pytest.mark.parametrize("until", by_turns([at("gate closed", "driver"), at("cleaned up", "driver")]))
def test_a_python_worker_that_outlives_its_executor_changes_nothing(table: Table, until: At) -> None:
    fault = Fault("outlives", at("file begun", "task"), Outlive(), until=until)
    report = table.write("upsert", 300, 900, fault)
    assert report.reaction.executors_lost, report
    assert table.is_right()


def test_of_two_faults_the_one_that_hits_who_was_ended_by_the_other_never_happens(table: Table) -> None:
    begun = at("file begun", "task")
    faults = Fault("exits", begun, ExitWorker()), Fault("outlives", begun, Outlive())
    with pytest.raises(FaultNeverHappenedError, match="outlives") as error:
        table.write("upsert", 300, 900, *faults)
    assert error.value.report.deeds == ["ExitWorker"] and error.value.report.outcome.value


def test_a_fault_that_finds_nothing_to_do_has_not_happened(table: Table) -> None:
    with pytest.raises(FaultNeverHappenedError, match="no shuffle file") as error:
        table.write("bulk_insert", ROWS, ROWS + 600, Fault("lost", at("file begun", "task"), LoseShuffle()))
    assert error.value.report.deeds == [] and error.value.report.outcome.value


def test_a_disk_that_is_not_small_is_not_filled(table: Table) -> None:
    fault = Fault("full", at("file begun", "task"), FillDisk(str(table.path)))
    with pytest.raises(ValueError, match="a real disk is not filled"):
        table.write("bulk_insert", ROWS, ROWS + 600, fault)


def test_a_write_whose_shuffle_files_are_lost_reads_its_rows_again(table: Table) -> None:
    fault = Fault("lost", at("file begun", "task"), LoseShuffle())
    report = table.write("bulk_insert", ROWS, ROWS + 600, fault, how="shuffled")
    assert "FetchFailed" in report.reaction.tasks_failed or report.reaction.stages_repeated, report
    assert table.is_right()


@pytest.mark.parametrize("how", ["chance", "cached chance"])
def test_rows_that_come_by_chance_are_those_of_one_reading_though_shuffle_files_are_lost(
    table: Table, how: str
) -> None:
    fault = Fault("lost", at("file begun", "task"), LoseShuffle())
    report = table.write("bulk_insert", ROWS, ROWS + 600, fault, how=how)
    assert report.outcome.value, report
    assert_each_once(table)


def test_rows_that_come_by_chance_and_are_made_again_while_they_are_stored_are_refused(table: Table) -> None:
    # One task has begun with its rows; the others find that their shuffle files are gone.
    fault = Fault("lost", at("source begins", "task"), LoseShuffle())
    report = table.write("bulk_insert", ROWS, ROWS + 600, fault, how="chance, then source")
    assert report.outcome.error == "IndeterminateInputError", report
    assert report.reaction.stages_repeated, report
    assert table.is_right()


@pytest.mark.parametrize("how", ["cached", "cached chance"])
def test_rows_whose_cache_is_lost_are_those_of_one_reading(table: Table, how: str) -> None:
    fault = Fault("lost", at("inflight", "driver"), KillExecutor())
    report = table.write("upsert", 300, 900, fault, how=how)
    if report.outcome.error:
        assert report.outcome.error == "IndeterminateInputError" and "chance" in how, report
    assert report.reaction.executors_lost, report
    assert_each_once(table)


def assert_each_once(table: Table) -> None:
    """Every row stands once, and is what it must be but for what came by chance."""
    rows = plain_reader.snapshot(table.path)
    found = sorted((row["id"], row["ts"], row["text"].partition("?")[0], row["part"]) for row in rows)
    assert found == table.expected.rows()


@pytest.mark.parametrize("point", by_turns(["gate closed", "commit published", "cleaned up"]))
def test_a_write_plan_that_is_run_again_when_the_write_is_over_writes_nothing(
    table: Table, point: str
) -> None:
    report = table.write("upsert", 300, 900, Fault("again", at(point, "driver"), RunAgain()))
    # Each slot is told of once more.
    assert report.notes["again"] == f"the plan, run again, gave {report.outcome.value['slots']} rows", report
    assert table.is_right() and table.hudi_goes_on()


@turn(newest=True)
def test_a_write_plan_that_is_run_again_where_that_is_refused_writes_nothing_either(table: Table) -> None:
    report = table.write(
        "upsert", 300, 900, Fault("again", at("cleaned up", "driver"), RunAgain()),
        hoodie__write__robust__on__finalized="fail",
    )  # fmt: skip
    assert "failed" in report.notes["again"] and "FencedError" in report.notes["again"], report
    assert report.outcome.value and table.is_right()


def test_of_two_copies_of_a_task_that_run_at_once_one_wins(chaos: Chaos, table: Table) -> None:
    session = chaos.session(
        {
            "spark.speculation": "true",
            "spark.speculation.interval": "100ms",
            "spark.speculation.multiplier": "1.1",
            "spark.speculation.quantile": "0.3",
            "spark.speculation.minTaskRuntime": "100ms",
        }
    )
    try:
        # The first one sleeps until its copy has staged the same files; then both want to win.
        slow = Fault(
            "slow", at("files staged", "task", slot="0"), Hold(),
            until=at("files staged", "task", nth=2, slot="0"),
        )  # fmt: skip
        report = table.write("bulk_insert", ROWS, ROWS + 600, slow, session=session)
    finally:
        session.close()
    assert report.reaction.copies, report
    assert table.is_right()


def test_a_source_that_raises_when_a_part_of_its_rows_is_on_its_way_is_read_again(
    chaos: Chaos, table: Table
) -> None:
    session = chaos.session({"spark.sql.execution.arrow.maxRecordsPerBatch": "1000"})
    try:
        raises = Fault("raises", at("source goes on", "task", nth=30), Raise())
        report = table.write("bulk_insert", ROWS, ROWS + 60_000, raises, how="source", session=session)
    finally:
        session.close()
    assert report.reaction.tasks_failed, report
    assert report.outcome.value, report
    assert table.is_right()


def test_an_executor_that_is_killed_as_a_stage_starts_is_replaced(table: Table) -> None:
    report = table.write("upsert", 300, 900, Fault("killed", stage_starts(2), KillExecutor()))
    assert report.reaction.executors_lost, report
    assert table.is_right()
