"""A snapshot of so many files that Spark is told of their folders and a pattern, not of each."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sparkrobust.coordinator.table import HudiTable, Listing
from tests.interop.tables import options
from tests.spark.tables import SMALL_FILE, Subject

FILES = 40
BULK = {"hoodie.bulkinsert.shuffle.parallelism": str(FILES), "hoodie.bulkinsert.sort.mode": "GLOBAL_SORT"}


@pytest.fixture(scope="module")
def written(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of two commits, older versions of some of them, in folders and in the table's own."""
    root = tmp_path_factory.mktemp("many")
    for partitions in ("", "region"):
        subject = Subject(spark, root / f"by_{partitions}", options(partitions=partitions))
        rows = [(i, "old", 5, f"p{i % 3}") for i in range(FILES * 3)]
        subject.write("bulk_insert", rows, BULK)
        subject.write(
            "upsert", [(i, "new", 6, f"p{i % 3}") for i in range(0, FILES * 3, 7)], {SMALL_FILE: "0"}
        )
        assert len([*subject.path.rglob("*.parquet")]) > len(subject.files()) >= FILES
    return root


@pytest.fixture(params=["", "region"])
def subject(request: pytest.FixtureRequest, spark: SparkSession, written: Path, tmp_path: Path) -> Subject:
    name = f"by_{request.param}"
    shutil.copytree(written / name, tmp_path / name)
    return Subject(spark, tmp_path / name, options(partitions=request.param))


def expected() -> list[tuple[int, str]]:
    return [(i, "new" if i % 7 == 0 else "old") for i in range(FILES * 3)]


def test_just_the_files_of_the_snapshot_are_read(subject: Subject) -> None:
    stray = subject.path / "a-stray.parquet"
    shutil.copy(subject.path / subject.files()[0], stray)
    assert sorted((row[0], row[1]) for row in subject.rows()) == expected()


def test_files_that_come_up_or_go_while_spark_looks_make_it_look_at_each(
    subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = HudiTable.listing
    listings: list[Listing] = []

    def listing(table: HudiTable, partitions: object = None) -> Listing:
        found = real(table, partitions)  # type: ignore[arg-type]
        listings.append(found)
        if len(listings) == 1:
            # Between our look and Spark's, a late task puts a second file of a group beside the first.
            file = subject.path / subject.files()[0]
            group, _, instant = file.name.split("_")
            shutil.copy(file, file.with_name(f"{group}_99-99-99_{instant}"))
        return found

    looks: list[list[str]] = []
    real_names = HudiTable.names

    def names(table: HudiTable, partitions: Iterable[str]) -> list[str]:
        looks.append(real_names(table, partitions))
        return looks[-1]

    monkeypatch.setattr(HudiTable, "listing", listing)
    monkeypatch.setattr(HudiTable, "names", names)
    assert sorted((row[0], row[1]) for row in subject.rows()) == expected()
    assert (len(listings), len(looks)) == (1, 1)
