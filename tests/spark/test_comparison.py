"""What tries of the comparison come to is told rightly; the tries themselves need a cluster and an hour."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fault_injection.spark.comparison.faults import COMPARED
from fault_injection.spark.comparison.outcomes import outcome
from fault_injection.spark.comparison.results import RESULTS, Results, page
from fault_injection.spark.comparison.subjects import SUBJECTS
from fault_injection.spark.report import Outcome

ADDS = next(subject for subject in SUBJECTS if subject.name == "plain parquet append")
MERGES = next(subject for subject in SUBJECTS if subject.name == "Delta merge")
DONE, KILLED, FAILED = Outcome(), Outcome(killed=True), Outcome(error="SparkException")


def counted(keys: int, **versions: int | list[int]) -> dict[str, Any]:
    """What a read finds: so many rows of a version, each once and whole, or more exactly."""
    return {
        "keys": keys,
        "versions": {
            name[1:]: found if isinstance(found, list) else [found, found, 0]
            for name, found in versions.items()
        },
    }


@pytest.mark.parametrize(
    ("ended", "found", "told"),
    [
        (DONE, counted(22_000, v1=2_000, v2=20_000), "right"),
        (DONE, counted(22_000, v1=2_000, v2=[25_000, 20_000, 0]), "5,000 rows twice"),
        (DONE, counted(17_000, v1=2_000, v2=15_000), "5,000 rows lost"),
        (DONE, counted(22_000, v1=2_000, v2=[20_000, 20_000, 3]), "3 rows torn"),
        (DONE, counted(21_000, v1=2_000, v2=[20_500, 19_000, 0]), "1,000 rows lost, 1,500 rows twice"),
        (FAILED, counted(2_000, v1=2_000), "right"),
        (FAILED, counted(2_010, v1=2_000, v2=10), "10 rows of a write that failed"),
        (KILLED, counted(2_000, v1=2_000), "right"),
        (KILLED, counted(22_000, v1=2_000, v2=20_000), "right"),
        (KILLED, counted(7_000, v1=2_000, v2=5_000), "a part of the write: 5,000 of 20,000 rows"),
        (KILLED, counted(1_000, v1=1_000), "1,000 rows lost"),
        (DONE, {"error": "AnalysisException: no"}, "can't be read: AnalysisException: no"),
    ],
)
def test_rows_that_are_not_as_they_must_be_are_told(ended: Outcome, found: dict[str, Any], told: str) -> None:
    assert _of(ADDS, ended, found)["at once"] == told


def test_rows_that_were_merged_stand_in_the_place_of_the_older_ones() -> None:
    assert _of(MERGES, DONE, counted(30_000, v2=30_000))["at once"] == "right"
    assert "lost" in str(_of(MERGES, DONE, counted(2_000, v1=2_000))["at once"])


def _of(subject: Any, ended: Outcome, found: dict[str, Any]) -> dict[str, str | int]:
    return outcome(subject, ended, {"at once": {"": found}, "next": "", "afterwards": {"": found}}, 0)


def test_tries_that_came_to_the_same_are_counted_together(tmp_path: Path) -> None:
    file, results = tmp_path / "results.json", Results({"date": "d", "machine": "m", "versions": {}})
    results.begin("engine", "fault", merges=False)
    right = {"job": "done", "at once": "right", "next": "", "afterwards": "right", "orphans": 0}
    lost = [{**right, "at once": f"{number:,} rows lost"} for number in (3_000, 4_000)]
    for found in (right, {}, {**right, "orphans": 1}, right, *lost):
        results.add("engine", "fault", found)
    results.begin("engine", "another fault", merges=False)
    results.add("engine", "another fault", {})
    results.save(file)
    text = "\n".join(page(Results.load(file)))
    assert (
        "| fault | rows right (2 of 5)<br>rows right, 1 orphan (1 of 5)<br>"
        "such as **3,000 rows lost**, after the next write rows right (2 of 5) |"
    ) in text
    assert "| another fault | the fault changed nothing in 1 try |" in text


def test_what_was_measured_is_about_the_faults_and_engines_that_are_there() -> None:
    cells = json.loads(RESULTS.read_text())["cells"]
    assert {cell["fault"] for cell in cells} <= {fault.name for fault in COMPARED}
    assert {cell["subject"] for cell in cells} <= {subject.name for subject in SUBJECTS}
