"""Several writers of one table, each a thread with a driver's whole way through a write."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import sparkrobust as sr
from sparkrobust import probe
from sparkrobust.errors import ConflictError
from sparkrobust.probe import Point
from tests.interop.tables import completed, options, pending
from tests.moments import at
from tests.spark.tables import Subject, leftovers

RETRIES = "hoodie.write.num.retries.on.conflict.failures"
EARLY = "hoodie.write.concurrency.early.conflict.detection.enable"
STRATEGY = "hoodie.write.lock.conflict.resolution.strategy"
WRITERS = {
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.write.lock.provider": "FileSystemBasedLockProvider",
}
REGIONS = ("eu", "us", "asia", "africa")


@pytest.fixture
def subject(spark: SparkSession, table: Path) -> Subject:
    """A table with a partition for each writer, and a row in each."""
    made = Subject(spark, table, {**options(), **WRITERS})
    made.write("bulk_insert", [(number, "first", 1, region) for number, region in enumerate(REGIONS)])
    return made


def is_whole(subject: Subject) -> bool:
    """Nothing is pending, and nothing lies there that does not belong to the table."""
    assert leftovers(subject.path) == [] and not pending(subject.path)
    return True


@pytest.mark.parametrize("strategy", ["SimpleConcurrent", "EndTimestampBasedConcurrent"])
def test_the_second_of_two_writes_of_a_row_is_refused_and_the_first_stays(
    subject: Subject, strategy: str
) -> None:
    chosen = {STRATEGY: f"{strategy}FileWritesConflictResolutionStrategy"}
    others: list[sr.WriteResult] = []

    def other() -> None:
        others.append(subject.write("upsert", [(0, "other", 5, "eu")]))

    with (
        probe.listening(at(Point.STAGE_ENDED, other)),
        pytest.raises(ConflictError, match="eu/") as refused,
    ):
        subject.write("upsert", [(0, "late", 9, "eu"), (1, "late", 9, "us")], chosen)
    assert others[0].instant in str(refused.value) and "upsert by tests (local-" in str(refused.value)
    assert subject.names() == {0: "other", 1: "first", 2: "first", 3: "first"}
    assert is_whole(subject)


def test_a_write_that_may_try_again_goes_by_what_the_other_wrote(subject: Subject) -> None:
    def other() -> None:
        subject.write("upsert", [(0, "other", 5, "eu"), (1, "other", 99, "us")])

    with probe.listening(at(Point.STAGE_ENDED, other)):
        result = subject.write("upsert", [(0, "late", 9, "eu"), (1, "late", 9, "us")], {RETRIES: "1"})
    assert result.retries == 1 and result.updated == 1
    assert subject.names() == {0: "late", 1: "other", 2: "first", 3: "first"}
    assert is_whole(subject)


@pytest.mark.parametrize("retries", ["0", "1"])
def test_a_new_key_that_two_writers_insert_is_in_the_table_once(subject: Subject, retries: str) -> None:
    def other() -> None:
        subject.write("upsert", [(9, "other", 5, "oz")])

    rows = [(9, "late", 7, "oz"), (8, "late", 7, "oz")]
    with probe.listening(at(Point.STAGE_ENDED, other)):
        if retries == "0":
            with pytest.raises(ConflictError, match="inserted 1 of the keys"):
                subject.write("upsert", rows)
        else:
            assert subject.write("upsert", rows, {RETRIES: retries}).retries == 1
    names = subject.names()
    assert (names[9], names.get(8)) == (("other", None) if retries == "0" else ("late", "late"))
    assert is_whole(subject)


@pytest.mark.parametrize(("check", "fails"), [("exact", True), ("off", False)])
def test_whether_new_keys_are_looked_at_can_be_chosen(subject: Subject, check: str, *, fails: bool) -> None:
    chosen = {"hoodie.write.robust.key.conflict.check": check}
    rows = [(9, "row", 5, "oz")]
    with probe.listening(at(Point.STAGE_ENDED, lambda: subject.write("bulk_insert", rows, chosen))):
        if fails:
            with pytest.raises(ConflictError, match="inserted 1 of the keys"):
                subject.write("bulk_insert", rows, chosen)
        else:
            subject.write("bulk_insert", rows, chosen)
    assert sum(row[0] == 9 for row in subject.rows()) == (1 if fails else 2)


def test_early_detection_ends_a_write_before_it_has_written_anything(subject: Subject) -> None:
    def other() -> None:
        subject.write("upsert", [(0, "other", 5, "eu")])

    points: list[Point] = []
    with (
        probe.listening(at(Point.INFLIGHT, other)),
        probe.listening(lambda point, facts: points.append(point)),
        pytest.raises(ConflictError),
    ):
        subject.write("upsert", [(0, "late", 9, "eu")], {EARLY: "true"})
    # The one stage that ended is the other writer's.
    assert points.count(Point.STAGE_ENDED) == 1
    assert subject.names()[0] == "other" and is_whole(subject)


def test_writers_of_different_partitions_never_get_into_each_others_way(subject: Subject) -> None:
    start = threading.Barrier(len(REGIONS))

    def write(number: int) -> None:
        start.wait()
        for version in range(2, 5):
            rows = [(id, f"v{version}", version, REGIONS[number]) for id in (number, 10 * version + number)]
            subject.write("upsert", rows)

    with ThreadPoolExecutor(len(REGIONS)) as threads:
        list(threads.map(write, range(len(REGIONS))))
    wanted = dict.fromkeys(range(len(REGIONS)), "v4")
    wanted |= {10 * v + number: f"v{v}" for v in range(2, 5) for number in range(len(REGIONS))}
    assert subject.names() == wanted
    assert len(completed(subject.path)) == 1 + 3 * len(REGIONS) and is_whole(subject)


def test_writers_of_the_same_row_take_turns_and_every_write_counts(subject: Subject) -> None:
    start = threading.Barrier(3)

    def write(number: int) -> int:
        start.wait()
        retries = 0
        for turn in range(2):
            rows = [(0, f"{number}.{turn}", 10 * turn + number, "eu"), (100 * number + turn, "own", 1, "us")]
            retries += subject.write("upsert", rows, {RETRIES: "50"}).retries
        return retries

    with ThreadPoolExecutor(3) as threads:
        retries = sum(threads.map(write, (1, 2, 3)))
    names = subject.names()
    # The largest ordering value wins, whoever came last.
    assert names[0] == "3.1"
    assert {id for id, name in names.items() if name == "own"} == {
        100 * n + turn for n in (1, 2, 3) for turn in (0, 1)
    }
    assert retries > 0 and is_whole(subject)
