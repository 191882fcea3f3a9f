"""The ways that rows take to their slots: whichever is taken, the same rows come out."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import sparkrobust as sr
from sparkrobust.core.names import ControlFolder
from sparkrobust.handles.plan import SlotResult
from sparkrobust.spark import gathering, routing, tagging
from sparkrobust.spark.gathering import Gathered
from sparkrobust.spark.slots import HASH_SPACE
from sparkrobust.spark.tasks import results_of
from tests.interop.tables import options, stats
from tests.spark.tables import (
    COMBINE_INSERT,
    DRIVER_BYTES,
    DUPLICATES,
    MAX_FILE,
    SMALL_FILE,
    Subject,
    everything_in,
    frame,
    leftovers,
)

WAYS: dict[str, list[tuple[object, str, object]]] = {
    "the driver writes": [],
    "the driver has the rows": [],
    "the driver looks the keys up": [(Gathered, "rows", lambda self: None)],
    "tasks look the keys up": [(Gathered, "rows", lambda self: None), (tagging, "_DRIVER_BYTES", 0)],
    "Spark joins the keys": [(Gathered, "rows", lambda self: None), (gathering, "KEYS_CHUNKS", 0)],
}


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Forces one of the ways."""
    for module, name, value in WAYS[request.param]:
        monkeypatch.setattr(module, name, value)
    return str(request.param)


def subject_of(way: str, spark: SparkSession, table: Path, **layout: str) -> Subject:
    """The table, written that way."""
    return Subject(
        spark, table, options(**layout) | {DRIVER_BYTES: "999999999" if way == "the driver writes" else "0"}
    )


def test_every_way_to_tag_gives_the_same_table(way: str, spark: SparkSession, table: Path) -> None:
    subject = subject_of(way, spark, table)
    # Two files a partition, so that tagging has something to tell apart.
    for first in (0, 6):
        rows = [(i, f"a{i}", 5, ("eu", "us")[i % 2]) for i in range(first, first + 6)]
        subject.write("upsert", rows, {SMALL_FILE: "0"})
    assert len(subject.files()) == 4

    batch = [(1, "up", 6, "us"), (8, "up", 6, "eu"), (2, "late", 1, "eu"), (12, "new", 1, "eu"),
             (13, "new", 1, "xx"), (13, "newer", 2, "xx"), (1, "elsewhere", 9, "eu")]  # fmt: skip
    result = subject.write("upsert", batch)
    assert (result.inserted, result.updated) == (3, 2)
    model = {(i, ("eu", "us")[i % 2]): f"a{i}" for i in range(12)}
    model |= {
        (1, "us"): "up",
        (8, "eu"): "up",
        (12, "eu"): "new",
        (13, "xx"): "newer",
        (1, "eu"): "elsewhere",
    }
    assert {(row[0], row[3]): row[1] for row in subject.rows()} == model
    assert len(subject.rows()) == len(model)

    result = subject.write("insert", [(3, "known", 9, "us"), (14, "new", 9, "us")], {DUPLICATES: "drop"})
    assert (result.inserted, result.updated) == (1, 0)
    model[14, "us"] = "new"
    before = everything_in(table)
    with pytest.raises(sr.errors.InvalidInputError, match="holds already"):
        subject.write("insert", [(14, "x", 9, "us")], {DUPLICATES: "fail"})
    for bad, words in (
        ((None, "no key", 1, "eu"), "null or empty"),
        ((20, "no time", None, "eu"), "ordering"),
    ):
        with pytest.raises(sr.errors.InvalidKeyError, match=words):
            subject.write("upsert", [bad, (21, "fine", 1, "eu")])
    with pytest.raises(sr.errors.UnsafePathError, match=r"\.\."):
        subject.write("upsert", [(20, "out", 1, "../out")])
    assert everything_in(table) == before

    dead = [(3, "us"), (12, "eu"), (4, "us"), (99, "yy")]
    result = subject.write("delete", dead, columns="id int, region string")
    assert result.deleted == 2
    del model[3, "us"], model[12, "eu"]
    subject.write("upsert", [])
    assert {(row[0], row[3]): row[1] for row in subject.rows()} == model


@pytest.mark.parametrize(
    "way", [way for way in WAYS if way not in ("tasks look the keys up", "the driver writes")], indirect=True
)
def test_many_small_slots_share_tasks_and_stay_apart(way: str, spark: SparkSession, table: Path) -> None:
    subject = subject_of(way, spark, table)
    parts = [f"p{i:02}" for i in range(70)]
    rows = [(i, f"n{i}", 5, part) for part in parts for i in (1, 2)]
    result = subject.write("insert", rows, {COMBINE_INSERT: "true"})
    assert (result.files_created, result.partitions, result.inserted) == (70, 70, 140)
    # The write tokens begin with the task: few tasks wrote them all.
    tokens = {stat["path"].split("_")[1].split("-")[0] for stat in stats(table)}
    assert len(tokens) < 10
    batch = [(1, "up", 6, part) for part in parts] + [(3, "new", 1, part) for part in parts[:50]]
    result = subject.write("upsert", batch)
    assert (result.updated, result.inserted, result.files_rewritten) == (70, 50, 70)
    wanted = [(1, "up", 6, part) for part in parts] + [(2, "n2", 5, part) for part in parts]
    assert subject.rows() == sorted(wanted + [(3, "new", 1, part) for part in parts[:50]], key=repr)


def test_a_key_that_several_files_hold_is_updated_and_deleted_in_each(
    way: str, spark: SparkSession, table: Path
) -> None:
    subject = subject_of(way, spark, table)
    for name in ("first", "second"):
        subject.write("insert", [(1, name, 5, "eu"), (2, name, 5, "eu")], {SMALL_FILE: "0"})
    result = subject.write("upsert", [(1, "up", 6, "eu"), (3, "new", 6, "eu")], {SMALL_FILE: "0"})
    assert (result.updated, result.inserted) == (2, 1)
    assert [row[:2] for row in subject.rows()] == [
        (1, "up"), (1, "up"), (2, "first"), (2, "second"), (3, "new")
    ]  # fmt: skip
    result = subject.write("delete", [(2, "eu")], columns="id int, region string")
    assert result.deleted == 2
    assert [row[0] for row in subject.rows()] == [1, 1, 3]


def test_rows_that_the_driver_sends_leave_nothing_behind(way: str, spark: SparkSession, table: Path) -> None:
    """PySpark broadcasts a large function, and keeps a file of it as long as the application runs."""
    subject = subject_of(way, spark, table)
    scratch = Path(spark.sparkContext._temp_dir)  # type: ignore[attr-defined]
    before = everything_in(scratch)
    many = spark.range(30_000).selectExpr(
        "CAST(id AS int) AS id",
        "sha2(CAST(id AS string), 512) AS name",
        "id AS ts",
        "CONCAT('p', id % 3) AS region",
    )
    for operation in ("insert", "upsert"):
        subject.save(operation, many)
        assert everything_in(scratch) == before and not leftovers(table)
    assert len(subject.rows()) == 30_000


@pytest.mark.parametrize("way", ["the driver looks the keys up", "Spark joins the keys"], indirect=True)
def test_adaptive_execution_changes_no_slots_rows(way: str, spark: SparkSession, table: Path) -> None:
    """However small the shuffle's partitions are, none is put together with another or split."""
    subject = subject_of(way, spark, table, partitions="")
    spark.conf.set("spark.sql.adaptive.coalescePartitions.parallelismFirst", "false")
    spark.conf.set("spark.sql.adaptive.advisoryPartitionSizeInBytes", "1g")
    try:
        more = {SMALL_FILE: "0", "hoodie.copyonwrite.insert.auto.split": "false",
                "hoodie.copyonwrite.insert.split.size": "100"}  # fmt: skip
        df = spark.range(1000).selectExpr("CAST(id AS int) AS id", "'n' AS name", "id AS ts", "'' AS region")
        result = subject.save("upsert", df, more)
        assert result.files_created == 10
        result = subject.save("upsert", df.where("id % 2 = 0"), more)
        assert (result.files_rewritten, result.files_created, result.updated) == (10, 0, 500)
    finally:
        spark.conf.unset("spark.sql.adaptive.coalescePartitions.parallelismFirst")
        spark.conf.unset("spark.sql.adaptive.advisoryPartitionSizeInBytes")
    assert {row[0] for row in subject.rows()} == set(range(1000))


def test_the_driver_writes_few_small_files_itself_and_leaves_the_rest_to_tasks(
    spark: SparkSession, table: Path
) -> None:
    subject = Subject(spark, table, options())

    def stages_of(rows: list[tuple[object, ...]], most_bytes: int = 4 << 20) -> set[str]:
        """The stages that wrote the files, from their write tokens; the driver says 0."""
        subject.write("upsert", rows, {DRIVER_BYTES: str(most_bytes)})
        return {stat["path"].split("_")[1].split("-")[1] for stat in stats(table)}

    few = [(1, "a", 5, "eu"), (2, "b", 5, "us")]
    assert "0" not in stages_of(few, 0)
    assert stages_of(few) == {"0"}
    assert "0" not in stages_of(few, sum((table / file).stat().st_size for file in subject.files()))
    wide = [(i, "wide" * 100_000, 6, "eu") for i in range(20)]
    assert "0" not in stages_of(wide), "the rows alone are more"
    many = [(i, "n", 5, f"p{i}") for i in range(9)]
    assert "0" not in stages_of(many)
    assert len(subject.rows()) == 30


@pytest.fixture
def by_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark joins the keys, and gives new ones to slots by shares of their hashes."""
    for module, name, value in WAYS["Spark joins the keys"]:
        monkeypatch.setattr(module, name, value)


MANY_SLOTS = {
    SMALL_FILE: "0",
    "hoodie.copyonwrite.insert.auto.split": "false",
    "hoodie.copyonwrite.insert.split.size": "100",
}


@pytest.mark.parametrize("operation", ["insert", "upsert"])
def test_a_slot_whose_share_of_the_hashes_no_key_falls_into_keeps_no_write_from_its_commit(
    by_hash: None, spark: SparkSession, table: Path, operation: str
) -> None:
    subject = subject_of("Spark joins the keys", spark, table)
    rows = [(i % 3, f"n{i}", i, "eu") for i in range(2000)]
    result = subject.save(operation, frame(spark, rows).repartition(3), MANY_SLOTS)
    wanted = sorted(rows if operation == "insert" else rows[-3:], key=repr)
    assert (subject.rows(), result.inserted) == (wanted, len(wanted))
    assert result.files_created == result.slots <= 3
    assert leftovers(table) == []
    # Their fewer files are the whole table: they are found, and filled.
    subject.write("upsert", [(i, "up", 9999, "eu") for i in range(4)])
    assert {row[:2] for row in subject.rows()} == {(i, "up") for i in range(4)}


def test_a_small_file_that_gets_none_of_the_new_keys_stays_as_it_was(
    by_hash: None, spark: SparkSession, table: Path
) -> None:
    subject = subject_of("Spark joins the keys", spark, table)
    for i in (1, 2):
        subject.write("insert", [(i, "a", 5, "eu")], {SMALL_FILE: "0"})
    smaller, larger = sorted(subject.files(), key=lambda file: (table / file).stat().st_size)
    size, others, a_row = (table / smaller).stat().st_size, 40, 1 << 20
    # Of so many rows the smaller file takes all but one, and the other one the last share of the hashes.
    share = HASH_SPACE * others // (others + 1)
    keys = spark.range(10, 1000).selectExpr(
        "CAST(id AS int) AS id", "'n' AS name", "id AS ts", "'eu' AS region"
    )
    keys = keys.where(f"pmod(xxhash64(CAST(id AS string)), {HASH_SPACE}) < {share}").limit(others + 1)
    new = [tuple(row) for row in keys.collect()]
    sizes = {
        "hoodie.copyonwrite.record.size.estimate": str(a_row),
        MAX_FILE: str(size + others * a_row + a_row // 2),
        SMALL_FILE: str(a_row),
    }
    result = subject.write("upsert", new, sizes)
    assert (result.inserted, result.files_rewritten, result.files_created) == (others + 1, 1, 0)
    assert larger in subject.files() and smaller not in subject.files()
    assert subject.rows() == sorted([*new, (1, "a", 5, "eu"), (2, "a", 5, "eu")], key=repr)
    assert leftovers(table) == []


def test_a_slot_of_which_no_task_tells_though_it_has_rows_is_not_taken_for_one_without(
    by_hash: None, spark: SparkSession, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However it comes that its completion marker is missing."""
    subject = subject_of("Spark joins the keys", spark, table)
    subject.write("insert", [(-1, "a", 5, "eu")])

    def forgotten(stage: DataFrame, control: ControlFolder) -> list[SlotResult]:
        results = results_of(stage, control)
        (table / control.completion(results[-1].slot)).unlink()
        return results[:-1]

    monkeypatch.setattr(routing, "results_of", forgotten)
    with pytest.raises(sr.errors.IndeterminateInputError, match="a set of 20 slots was given 2000 rows"):
        subject.write("insert", [(i, "n", 5, "eu") for i in range(2000)], MANY_SLOTS)
    assert subject.rows() == [(-1, "a", 5, "eu")] and leftovers(table) == []
