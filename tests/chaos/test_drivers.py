"""Whatever becomes of a driver, the next one finds a table that is right, and goes on with it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fault_injection.spark.chaos import Chaos
from fault_injection.spark.faults import (
    At,
    Fault,
    FillDisk,
    FreezeDriver,
    Hold,
    KillDriver,
    Seal,
    Told,
    after,
    at,
    before,
)
from tests.chaos.conftest import JOB, ROWS, Table, by_turns, checkered, turn
from tests.chaos.test_tasks import needs_namespaces
from tests.interop.oracle import Oracle

pytest_plugins = ["fault_injection.pytest_plugin"]

PUBLISH = "sparkrobust.storage.local:LocalStorage._move_into_place"

BEFORE_THE_DECISION = {
    "before inflight": at("requested", "driver"),
    "mid write": at("file begun", "task", nth=2),
    "after the completion markers": at("stage ended", "driver"),
    "after finalize": at("gate closed", "driver"),
    "before the decision": at("commit staged", "driver"),
}
AFTER_THE_DECISION = {
    "after the decision": at("decided", "driver"),
    "half-way through publishing": before(PUBLISH, nth=2),
    "before the commit file": at("data published", "driver"),
    "after the commit file": at("commit published", "driver"),
    "before clean-up": after("sparkrobust.coordinator.transaction:Transaction.commit"),
}


@pytest.fixture(scope="module")
def chaos(chaos: Chaos) -> Iterator[Chaos]:
    """With one executor for each driver: there are going to be many drivers."""
    with Chaos(chaos.cluster, settings={"spark.cores.max": "1"}, told=chaos.told) as runner:
        yield runner


@pytest.mark.parametrize("moment", BEFORE_THE_DECISION)
def test_a_write_whose_driver_dies_before_the_decision_never_was(table: Table, moment: str) -> None:
    report = table.write("upsert", 300, 900, Fault("dies", BEFORE_THE_DECISION[moment], KillDriver()))
    assert report.outcome.killed, report
    report = table.write("upsert", 500, 1000)
    assert len(report.outcome.value["rolled_back"]) == 1, report
    assert table.is_right()
    assert moment != "after finalize" or table.hudi_goes_on()


@pytest.mark.parametrize("moment", AFTER_THE_DECISION)
def test_a_write_whose_driver_dies_after_the_decision_is_finished_by_the_next(
    table: Table, moment: str
) -> None:
    report = table.write("upsert", 300, 900, Fault("dies", AFTER_THE_DECISION[moment], KillDriver()))
    assert report.outcome.killed, report
    table.expected.write("upsert", 300, 900, 2)
    report = table.write("upsert", 500, 1000)
    assert report.outcome.value["rolled_back"] == [], report
    assert table.is_right()
    assert moment != "half-way through publishing" or table.hudi_goes_on()


def test_a_write_that_was_all_there_when_its_driver_died_is_committed_by_recover_without_a_task(
    chaos: Chaos, table: Table
) -> None:
    table.write("upsert", 300, 900, Fault("dies", at("stage ended", "driver"), KillDriver()))
    table.expected.write("upsert", 300, 900, 2)
    report = chaos.run("fault_injection.spark.jobs:recover", str(table.path))
    assert [one["fate"] for one in report.outcome.value] == ["Fate.COMMITTED"], report
    assert table.is_right()


@pytest.mark.parametrize(
    "moment",
    by_turns([at("file begun", "task"), at("commit staged", "driver"), at("data published", "driver")]),
)
def test_a_driver_that_sleeps_past_its_lock_and_heartbeat_does_no_harm_when_it_wakes(
    chaos: Chaos, hudi: Oracle, table: Table, moment: At
) -> None:
    options = {
        "hoodie.write.lock.provider": "FileSystemBasedLockProvider",
        "hoodie.write.lock.filesystem.expire": "1",
        "hoodie.client.heartbeat.interval_in_ms": "1000",
        "hoodie.client.heartbeat.tolerable.misses": "2",
    }
    sleeper = chaos.session()
    try:
        asleep = chaos.start(
            JOB, str(table.path), "upsert", 300, 900, 50, options=options, session=sleeper,
            faults=[Fault("sleeps", moment, FreezeDriver(), until=Told())],
        )  # fmt: skip
        asleep.wait_for("sleeps")
        grow_old(table.path / ".hoodie" / "lock")
        report = table.write("upsert", 500, 1000, **{k.replace(".", "__"): v for k, v in options.items()})
        assert report.outcome.value, report
        asleep.end("sleeps")
        woken = asleep.result().outcome
    finally:
        sleeper.close()
    if moment.point == "data published":
        # It had decided, so the other one has finished its write.
        assert woken.value and woken.value["inserted"] == 300, woken
        sleepers = table.expected.versions
        for number in range(300, 900):
            sleepers[number] = [50]
    else:
        assert woken.error in ("FencedError", "HeartbeatLostError"), woken
    assert table.is_right() and table.hudi_goes_on()


@turn(newest=False)
def test_a_driver_that_sleeps_until_something_that_never_comes_wakes_in_the_end(table: Table) -> None:
    never = at("slot done", "task", nth=1000)
    sleeps = Fault("sleeps", at("gate seen", "task"), FreezeDriver(), until=never, longest=1)
    report = table.write("upsert", 300, 900, sleeps)
    assert report.outcome.value and report.seconds > 1, report
    assert table.is_right()


def grow_old(file: Path) -> None:
    """As if more than a minute had gone by, where there is such a file."""
    if file.exists():
        then = time.time() - 120
        os.utime(file, (then, then))


def test_two_drivers_with_the_same_write_id_write_once(chaos: Chaos, table: Table) -> None:
    options = {"hoodie.write.robust.write.id": "the same"}
    first = chaos.session()
    try:
        slow = Fault("slow", at("stage ended", "driver"), Hold(), until=Told())
        running = chaos.start(
            JOB, str(table.path), "upsert", 300, 900, 2, options=options, session=first, faults=[slow]
        )
        running.wait_for("slow")
        other = chaos.run(JOB, str(table.path), "upsert", 300, 900, 2, options=options)
        running.end("slow")
        told = running.result().outcome
    finally:
        first.close()
    assert other.outcome.value, other
    if told.error:
        assert told.error in ("ConflictError", "FencedError"), told
    else:
        assert told.value and told.value["instant"] == other.outcome.value["instant"], told
    table.expected.write("upsert", 300, 900, 2)
    assert table.is_right() and table.hudi_goes_on()


@needs_namespaces
@pytest.mark.parametrize(
    ("deed", "moment"),
    checkered([FillDisk, Seal], [at("inflight", "driver"), at("stage ended", "driver")]),
)
def test_a_disk_that_takes_nothing_more_fails_the_write_and_loses_nothing(
    chaos: Chaos, hudi: Oracle, tmp_path: Path, deed: type[FillDisk] | type[Seal], moment: At
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    places = chaos.cluster.places
    places.small_disk(disk, 8)
    table = Table(chaos, hudi, disk / "t").begin()
    report = table.write("upsert", 300, 900, Fault("disk", moment, deed(str(disk))))
    assert report.outcome.error in ("StorageFullError", "PermissionDeniedError", "CommitUnknownError"), report
    report = table.write("upsert", 0, ROWS)
    assert report.outcome.value, report
    assert table.is_right(places.seen_from_here(table.path))
