"""Partition values come from anybody: each is refused, or stays in the table and comes back equal."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import sparkrobust as sr
from sparkrobust.core.partition_path import problem_with, render
from sparkrobust.errors import UnsafePathError
from tests.interop.tables import HIVE_STYLE, URL_ENCODE, options
from tests.spark.tables import Subject, leftovers

VALUES = (
    # ordinary
    "a", "é 漢字", "🙂", "-", "null", "NULL", "CON", "_x", ".x", "x.parquet",
    # blanks
    " ", "a b ", "\t", "\n", "\x7f", "\x01", "a\x00b", "\u202e", "\ufeff",
    # dots and slashes
    "..", ".", "...", "d/b", "a//b", "/a", "a/", "a/../b", "../x", "..\\x", "\\", "C:\\x", "~",
    # percent-encoded
    "%", "%2F", "%2e%2e", "%00", "50%",
    # what a shell, a pattern or a URL takes for its own
    "$HOME", "`id`", "*", "?", "[a]", "{a,b}", "^", "|", "'", '"', "#", ":", "a:b", "file:///x", ";",
    "&", "+",
    # what Hive and Hudi take for their own
    "=", "a=b", "region=x", "__HIVE_DEFAULT_PARTITION__x", ".hoodie", ".hoodie/x", ".HOODIE",
    ".hoodie_partition_metadata",
    # long
    "x" * 255, "x" * 256, "é" * 127, "é" * 128, "a" * 100 + "/b",
)  # fmt: skip


@pytest.mark.parametrize("encoded", ["false", "true"])
@pytest.mark.parametrize("hive_style", ["false", "true"])
def test_a_partition_value_is_refused_or_comes_back_equal_and_nothing_lies_outside(
    hive_style: str, encoded: str, spark: SparkSession, tmp_path: Path
) -> None:
    style = {HIVE_STYLE: hive_style, URL_ENCODE: encoded}
    root = tmp_path / "around" / "t"
    subject = Subject(spark, root, {**options(), **style})
    subject.write("bulk_insert", [(0, "first", 1, "first")])
    paths = {
        v: render([v], ["region"], hive_style=hive_style == "true", encoded=encoded == "true") for v in VALUES
    }
    accepted = {i: value for i, value in enumerate(VALUES, 1) if problem_with(paths[value]) is None}
    for i in [i for i, value in accepted.items() if "/" in paths[value]]:
        # Rows of a partition that lies in another one would be seen by nobody.
        if paths[accepted[i]].rpartition("/")[0] in paths.values():
            with pytest.raises(UnsafePathError, match="would lie in"):
                subject.write(
                    "insert", [(98, "n", 1, accepted[i].rpartition("/")[0]), (99, "n", 1, accepted[i])]
                )
            del accepted[i]
    refused_values = set(VALUES) - set(accepted.values())
    assert {"a\0b", "x" * 256} <= refused_values
    if encoded == "false":
        assert {"a//b", "a/", "a/../b", "a:b", "\n", "\x7f"} <= refused_values
    if style == {HIVE_STYLE: "false", URL_ENCODE: "false"}:
        assert {"..", ".", "/a", "../x", ".hoodie", ".hoodie/x"} <= refused_values
    subject.write("insert", [(i, "n", 1, value) for i, value in accepted.items()])
    for value in sorted(refused_values)[:3]:
        with pytest.raises(UnsafePathError):
            subject.write("insert", [(99, "n", 1, value)])
    found = sr.read(spark).load(str(root)).select("id", "region", "_hoodie_partition_path").collect()
    assert {row.id: row.region for row in found} == {0: "first", **accepted}
    assert {row[2] for row in found if row.id} == {paths[value] for value in accepted.values()}
    assert {path.name for path in (tmp_path / "around").iterdir()} == {"t"}
    assert {path.name for path in tmp_path.iterdir()} == {"around"}
    assert not leftovers(root) and not (root / ".hoodie" / "x").exists()


def test_no_partition_may_come_to_lie_in_another_one(spark: SparkSession, table: Path) -> None:
    subject = Subject(spark, table, options())
    subject.write("upsert", [(1, "a", 1, "a"), (2, "b", 1, "b/c/d")])
    for value in ("a/x", "a/x/y", "b", "b/c", "b/c/d/e"):
        for operation in ("upsert", "bulk_insert"):
            with pytest.raises(UnsafePathError, match="would lie in"):
                subject.write(operation, [(3, "c", 1, value)])
    with pytest.raises(UnsafePathError, match="'n/m' would lie in the partition 'n'"):
        subject.write("bulk_insert", [(3, "c", 1, "n"), (4, "d", 1, "n/m")])
    assert subject.names() == {1: "a", 2: "b"} and not leftovers(table)
    # What failed writes left does not stand in the way, nor does a folder of files.
    (table / "files" / "of mine").mkdir(parents=True)
    subject.write("upsert", [(3, "c", 1, "n/m"), (4, "d", 1, "b/c/e"), (5, "e", 1, "files")])
    assert subject.names() == {1: "a", 2: "b", 3: "c", 4: "d", 5: "e"}


def test_a_table_that_is_replaced_may_have_its_partitions_higher_or_lower(
    spark: SparkSession, table: Path
) -> None:
    none, one, two = options(partitions=""), options(), options(partitions="region,ts")
    for number, made in enumerate((none, one, two, none, two, one)):
        subject = Subject(spark, table, made)
        subject.write("insert", [(number, "n", 1, "eu"), (9, "m", 2, "us")], mode="overwrite")
        assert subject.names() == {number: "n", 9: "m"}
        subject.write("upsert", [(9, "m2", 2, "us"), (10, "o", 1, "eu")])
        assert subject.names() == {number: "n", 9: "m2", 10: "o"}
