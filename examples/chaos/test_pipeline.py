"""What the pipeline's owner wants to know: are the totals right whatever fails while they are made?

pytest examples/chaos
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from fault_injection.spark.chaos import Chaos
from fault_injection.spark.faults import (
    Appears,
    Fault,
    KillDriver,
    KillExecutor,
    LoseShuffle,
    When,
    stage_starts,
)

pytest_plugins = ["fault_injection.pytest_plugin"]

JOB = "examples.chaos.pipeline:totals"
CUSTOMERS = 97


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    """Four files of orders."""
    folder = tmp_path / "orders"
    folder.mkdir()
    for number in range(4):
        lines = (
            json.dumps({"customer": f"c{order % CUSTOMERS}", "amount": order})
            for order in range(number * 5000, number * 5000 + 5000)
        )
        (folder / f"{number}.json").write_text("\n".join(lines))
    return folder


def are_right(out: Path) -> bool:
    """The totals, worked out here."""
    wanted: Counter[str] = Counter()
    for order in range(20_000):
        wanted[f"c{order % CUSTOMERS}"] += order
    rows = pq.read_table(out).to_pylist()
    return len(rows) == CUSTOMERS and {row["customer"]: row["amount"] for row in rows} == wanted


@pytest.mark.parametrize("when", [stage_starts(1), stage_starts(2)], ids=["reading", "summing"])
def test_totals_are_right_though_all_executors_are_killed(
    chaos: Chaos, orders: Path, tmp_path: Path, when: When
) -> None:
    out = tmp_path / "totals"
    report = chaos.run(JOB, str(orders), str(out), faults=[Fault("killed", when, KillExecutor())])
    assert report.reaction.executors_lost
    assert are_right(out)


def test_totals_are_right_though_shuffle_files_are_lost(chaos: Chaos, orders: Path, tmp_path: Path) -> None:
    out = tmp_path / "totals"
    # A stage's beginning does not wait: whether its tasks have read them all by then is chance.
    chaos.run(JOB, str(orders), str(out), faults=[Fault("lost", stage_starts(2), LoseShuffle())])
    assert are_right(out)


def test_a_second_run_is_right_though_the_first_ones_driver_was_killed(
    chaos: Chaos, orders: Path, tmp_path: Path
) -> None:
    out = tmp_path / "totals"
    halfway = Appears(str(tmp_path), "totals/_temporary/**/*.parquet")
    report = chaos.run(JOB, str(orders), str(out), faults=[Fault("dies", halfway, KillDriver())])
    assert report.outcome.killed
    assert chaos.run(JOB, str(orders), str(out)).outcome.value == CUSTOMERS
    assert are_right(out)
