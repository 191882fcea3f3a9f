"""Random operations against a dict: our reader and the plain one see what the dict holds, after each."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import sparkrobust as sr
from sparkrobust.coordinator.transaction import Transaction
from tests.interop.tables import HIVE_STYLE, options, pending
from tests.spark.tables import COLUMNS, DRIVER_BYTES, DUPLICATES, SMALL_FILE, Row, Subject, leftovers

FLAGGED = COLUMNS + ", _hoodie_is_deleted boolean"
PARTITIONS = ("eu", "us", "a b")


@dataclass
class Model:
    """What the table must hold: rows by partition and key, Hudi's rules for each operation."""

    event_time: bool
    rows: dict[tuple[str, int], Row] = field(default_factory=dict)

    def upsert(self, rows: list[Row]) -> None:
        newest: dict[tuple[str, int], Row] = {}
        for row in rows:
            self._put(newest, row)
        for row in newest.values():
            self._put(self.rows, row)
        self.rows = {place: row for place, row in self.rows.items() if not row[4]}

    def _put(self, into: dict[tuple[str, int], Row], row: Row) -> None:
        held = into.get((row[3], row[0]))
        if held is None or not self.event_time or row[2] >= held[2]:
            into[row[3], row[0]] = row

    def add(self, rows: list[Row]) -> None:
        for row in rows:
            if not row[4]:
                self.rows.setdefault((row[3], row[0]), row)

    def delete(self, rows: list[Row]) -> None:
        for row in rows:
            self.rows.pop((row[3], row[0]), None)


rows_of_keys = st.lists(
    st.tuples(
        st.integers(0, 12),
        st.sampled_from(["x", "", "é", None]),
        st.integers(0, 5),
        st.sampled_from(PARTITIONS),
        st.sampled_from([None, False, False, True]),
    ),
    max_size=10,
)
steps = st.tuples(
    st.sampled_from(["upsert", "upsert", "insert", "bulk_insert", "delete", "overwrite", "bad", "killed"]),
    rows_of_keys,
    st.sampled_from(["0", "104857600"]),
    st.sampled_from(["0", "104857600"]),
)


def distinct(rows: list[Row]) -> list[Row]:
    """One row a key, none that is a delete."""
    return list({(row[3], row[0]): (*row[:4], False) for row in rows}.values())


class Play:
    """Does each step to the table and to the model."""

    def __init__(self, subject: Subject, model: Model) -> None:
        self.subject, self.model = subject, model

    def step(self, name: str, rows: list[Row], small_files: str, driver_bytes: str) -> None:
        extra = {SMALL_FILE: small_files, DRIVER_BYTES: driver_bytes}
        act: dict[str, Callable[[list[Row], dict[str, str]], None]] = {
            "upsert": self.upsert, "insert": self.insert, "bulk_insert": self.bulk_insert,
            "delete": self.delete, "overwrite": self.overwrite, "bad": self.bad, "killed": self.killed,
        }  # fmt: skip
        act[name](rows, extra)

    def write(
        self, operation: str, rows: list[Row], *more: dict[str, str], mode: str = "append"
    ) -> sr.WriteResult:
        return self.subject.write(operation, rows, *more, mode=mode, columns=FLAGGED)

    def upsert(self, rows: list[Row], extra: dict[str, str]) -> None:
        self.write("upsert", rows, extra)
        self.model.upsert(rows)

    def insert(self, rows: list[Row], extra: dict[str, str]) -> None:
        self.write("insert", distinct(rows), extra, {DUPLICATES: "drop"})
        self.model.add(distinct(rows))

    def bulk_insert(self, rows: list[Row], extra: dict[str, str]) -> None:
        new = [row for row in distinct(rows) if (row[3], row[0]) not in self.model.rows]
        self.write("bulk_insert", new, extra)
        self.model.add(new)

    def delete(self, rows: list[Row], extra: dict[str, str]) -> None:
        gone = {(row[3], row[0]) for row in rows} & set(self.model.rows)
        result = self.write("delete", rows, extra)
        assert result.deleted == len(gone)
        self.model.delete(rows)

    def overwrite(self, rows: list[Row], extra: dict[str, str]) -> None:
        self.write("upsert", rows, extra, mode="overwrite")
        self.model.rows = {}
        self.model.upsert(rows)

    def bad(self, rows: list[Row], extra: dict[str, str]) -> None:
        for operation in ("upsert", "bulk_insert"):
            with pytest.raises(sr.errors.UnsafePathError):
                self.write(operation, [*rows, (1, "bad", 1, "a/../../x", False)], extra)

    def killed(self, rows: list[Row], extra: dict[str, str]) -> None:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(Transaction, "finalize", _dies)
            patched.setattr(Transaction, "abort", lambda self, reason: None)
            with pytest.raises(SystemExit):
                self.write("upsert", rows, extra)


def _dies(self: Transaction, *args: Any, **kwargs: Any) -> None:
    raise SystemExit


@settings(
    max_examples=5,
    deadline=None,
    database=None,
    phases=[Phase.generate],  # a smaller example would cost as much again as the search
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(plan=st.lists(steps, min_size=6, max_size=9), event_time=st.booleans(), hive=st.booleans())
def test_whatever_is_done_in_whatever_order_the_table_holds_what_the_model_holds(
    spark: SparkSession,
    tmp_path: Path,
    plan: list[tuple[str, list[Row], str, str]],
    event_time: bool,
    hive: bool,
) -> None:
    path = tmp_path / "t"
    shutil.rmtree(path, ignore_errors=True)
    made = options(ordering="ts" if event_time else None, **{HIVE_STYLE: str(hive).lower()})
    subject = Subject(spark, path, made, FLAGGED)
    play = Play(subject, Model(event_time))
    play.step("bulk_insert", [(i, "first", 3, PARTITIONS[i % 3], False) for i in range(6)], "0", "0")
    for number, (name, *how) in enumerate(plan):
        play.step(name, *how)
        if name in ("bad", "killed") and number % 2:
            continue  # what comes next has to cope
        assert subject.rows() == sorted(play.model.rows.values(), key=repr), (number, name)
    play.step("upsert", [], "0", "0")
    assert subject.rows() == sorted(play.model.rows.values(), key=repr)
    assert not pending(path) and not leftovers(path)
