"""Several writers of one table, each a thread with a driver's whole way through a write."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import sparkrobust as sr
from sparkrobust import probe
from sparkrobust.core.names import IS_DELETED
from sparkrobust.errors import ConflictError
from sparkrobust.probe import Point
from sparkrobust.spark import gathering, routing
from sparkrobust.spark.gathering import Gathered
from tests.interop.tables import completed, options, pending
from tests.moments import at, overtaken
from tests.spark.tables import COLUMNS, DRIVER_BYTES, DUPLICATES, NULL_FOR_MISSING, Subject, leftovers

RETRIES = "hoodie.write.num.retries.on.conflict.failures"
EARLY = "hoodie.write.concurrency.early.conflict.detection.enable"
KEY_CHECK = "hoodie.write.robust.key.conflict.check"
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


# -- what alone is written again -----------------------------------------------------------------------------

WAYS: dict[str, tuple[str, list[tuple[object, str, object]]]] = {
    "the driver writes": ("999999999", []),
    "the driver has the rows": ("0", []),
    "the driver leaves the rows to the tasks": ("0", [(routing, "_MOST_IN_A_FUNCTION", 0)]),
    "the driver looks the keys up": ("0", [(Gathered, "rows", lambda self: None)]),
    "Spark joins the keys": ("0", [(Gathered, "rows", lambda self: None), (gathering, "KEYS_CHUNKS", 0)]),
}


def by_way(way: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """From now on rows go this way; the options that it takes besides."""
    most_here, changes = WAYS[way]
    for where, name, value in changes:
        monkeypatch.setattr(where, name, value)
    return {DRIVER_BYTES: most_here}


def staged(table: Path) -> tuple[list[str], list[str]]:
    """The completion markers of the one write that has some, and the groups of the files that were staged."""
    (sealed,) = table.glob(".hoodie/.robust/*/sealed")
    markers = sorted(path.name for path in (sealed.parent / "cm").iterdir())
    return markers, sorted(path.name.partition("_")[0] for path in sealed.iterdir())


@pytest.mark.parametrize("way", WAYS)
def test_a_write_that_was_overtaken_writes_again_what_the_other_has_changed_and_nothing_else(
    subject: Subject, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = by_way(way, monkeypatch)
    seen: list[tuple[list[str], list[str]]] = []
    (eu,) = {path.rpartition("/")[2].partition("_")[0] for path in subject.files() if path.startswith("eu/")}

    def early() -> sr.WriteResult:
        return subject.write(
            "upsert", [(0, "early", 5, "eu"), (20, "early", 99, "eu"), (21, "early", 5, "eu")]
        )

    late = [(0, "late", 9, "eu"), (20, "late", 9, "eu"), (1, "late", 9, "us"), (8, "late", 9, "oz")]

    def look(point: Point, facts: dict[str, Any]) -> None:
        if point is Point.MARKERS_READ:
            seen.append(staged(subject.path))

    with overtaken(early), probe.listening(look):
        result = subject.write("upsert", late, {RETRIES: "1", **options})
    assert (result.retries, result.slots_redone, result.slots) == (0, 1, 3)
    assert (result.inserted, result.updated, result.files_created, result.files_rewritten) == (1, 2, 1, 2)
    _, (markers, groups) = seen  # the other one's, and ours
    assert len(markers) == 4 and (len(groups), groups.count(eu)) == (4, 2)
    # Of the row that both have inserted the larger ordering value wins.
    wanted = {0: "late", 1: "late", 2: "first", 3: "first", 8: "late", 20: "early", 21: "early"}
    assert subject.names() == wanted
    assert is_whole(subject)


@pytest.mark.parametrize("way", ["the driver has the rows", "Spark joins the keys"])
def test_file_groups_that_share_tasks_are_written_again_without_those_that_nobody_has_changed(
    subject: Subject, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_way(way, monkeypatch)
    many = range(100, 120)
    subject.write("upsert", [(number, "first", 1, f"r{number}") for number in many])
    early = [(number, "early", 5, f"r{number}") for number in (101, 102, 117)]
    early += [(number + 100, "early", 5, f"r{number}") for number in (101, 117)]
    with overtaken(lambda: subject.write("upsert", early)):
        late = [(number, "late", 9, f"r{number}") for number in many]
        result = subject.write("upsert", late, {RETRIES: "1"})
    assert (result.retries, result.slots_redone, result.slots) == (0, 3, len(many))
    wanted = {**dict.fromkeys(range(4), "first"), **dict.fromkeys(many, "late"), 201: "early", 217: "early"}
    assert subject.names() == wanted and is_whole(subject)


def test_an_insert_that_looks_up_nothing_does_so_too(subject: Subject) -> None:
    with overtaken(lambda: subject.write("insert", [(50, "early", 1, "eu")])):
        result = subject.write("insert", [(51, "late", 1, "eu"), (52, "late", 1, "us")], {RETRIES: "1"})
    assert (result.retries, result.slots_redone, result.slots) == (0, 1, 2)
    names = subject.names()
    assert (names[50], names[51], names[52]) == ("early", "late", "late") and is_whole(subject)


@pytest.mark.parametrize(
    ("operation", "more"),
    [("delete", {}), ("insert", {DUPLICATES: "drop"}), ("upsert", {KEY_CHECK: "off"})],
    ids=["delete", "insert that drops duplicates", "upsert that compares no keys"],
)
def test_what_goes_by_keys_that_others_may_have_written_elsewhere_is_made_again_as_a_whole(
    subject: Subject, operation: str, more: dict[str, str]
) -> None:
    rows = [(0, "late", 9, "eu"), (60, "late", 9, "us"), (61, "late", 9, "eu")]
    with overtaken(lambda: subject.write("upsert", [(0, "early", 5, "eu"), (60, "early", 5, "us")])):
        result = subject.write(operation, rows, {RETRIES: "1", **more})
    assert (result.retries, result.slots_redone) == (1, 0)
    names = {number: subject.names().get(number) for number in (0, 60, 61)}
    assert (
        names
        == {
            "delete": {0: None, 60: None, 61: None},
            "insert": {0: "early", 60: "early", 61: "late"},
            "upsert": {0: "late", 60: "late", 61: "late"},
        }[operation]
    )
    assert is_whole(subject)


def test_a_row_that_deletes_a_key_which_another_writer_inserted_meanwhile_deletes_it(
    spark: SparkSession, table: Path
) -> None:
    columns = f"{COLUMNS}, {IS_DELETED} boolean"
    subject = Subject(spark, table, {**options(), **WRITERS}, columns)
    subject.write("upsert", [(0, "first", 1, "eu", False), (1, "first", 1, "us", False)])
    early = [(0, "early", 5, "eu", False), (60, "early", 5, "us", False)]
    with overtaken(lambda: subject.write("upsert", early)):
        late = [(0, "late", 9, "eu", False), (60, "late", 9, "us", True)]
        result = subject.write("upsert", late, {RETRIES: "1"})
    assert (result.retries, result.slots_redone) == (1, 0)
    assert subject.names() == {0: "late", 1: "first"} and is_whole(subject)


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


@pytest.mark.parametrize("retries", [0, 1])
def test_a_column_that_another_writer_adds_meanwhile_stays_with_all_that_is_in_it(
    subject: Subject, retries: int
) -> None:
    def other() -> None:
        subject.write("upsert", [(1, "other", 5, "us", "kept")], columns=f"{COLUMNS}, note string")

    without = {NULL_FOR_MISSING: "true"}
    with probe.listening(at(Point.STAGE_ENDED, other)):
        rows = [(0, "late", 9, "eu")]
        if not retries:
            with pytest.raises(ConflictError, match="other columns"):
                subject.write("upsert", rows, without)
        else:
            assert subject.write("upsert", rows, without, {RETRIES: str(retries)}).retries == retries
    # Whoever makes the other's file anew knows of its column.
    subject.write("upsert", [(1, "too old", 1, "us")], without)
    found = {row["id"]: row.asDict() for row in sr.read(subject.spark).load(str(subject.path)).collect()}
    assert (found[1]["name"], found[1]["note"]) == ("other", "kept")
    assert found[0]["name"] == ("late" if retries else "first")
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


def test_while_a_table_is_restored_a_write_is_refused_before_it_writes_and_does_not_try_again(
    subject: Subject,
) -> None:
    restore = subject.path / ".hoodie" / "timeline" / "99990101000000000.restore.requested"
    restore.touch()
    before = sorted(subject.path.rglob("*"))
    with pytest.raises(ConflictError, match=r"is being restored.*99990101000000000 \(restore, requested\)"):
        subject.write("upsert", [(0, "late", 9, "eu")], {RETRIES: "3"})
    assert sorted(subject.path.rglob("*")) == before
    restore.unlink()
    assert subject.write("upsert", [(0, "later", 9, "eu")]).retries == 0
    assert subject.names()[0] == "later" and is_whole(subject)


def test_writers_of_the_same_row_take_turns_and_every_write_counts(subject: Subject) -> None:
    start = threading.Barrier(3)

    def write(number: int) -> int:
        start.wait()
        retries = 0
        for turn in range(2):
            rows = [(0, f"{number}.{turn}", 10 * turn + number, "eu"), (100 * number + turn, "own", 1, "us")]
            result = subject.write("upsert", rows, {RETRIES: "50"})
            retries += result.retries + result.slots_redone
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
