"""Random writes with random faults, of which the real Hudi says what has come of them."""

from __future__ import annotations

from pathlib import Path

from fault_injection.spark.chaos import Chaos
from fault_injection.spark.random_chaos import RandomChaos
from tests.chaos.conftest import NEWEST, Table
from tests.interop.oracle import Oracle

pytest_plugins = ["fault_injection.pytest_plugin"]

FAULTS, DRIVERS = 15, 3
"""On each of two Sparks."""


def test_hudi_reads_what_random_faults_have_left_as_it_must_be_and_goes_on(
    chaos: Chaos, hudi: Oracle, tmp_path: Path
) -> None:
    with Chaos(chaos.cluster, told=chaos.told) as drivers:
        by_chance = RandomChaos(drivers, tmp_path, seed=1 if NEWEST else 2, writes_of_a_table=4)
        while by_chance.happened.total() < FAULTS or by_chance.drivers < DRIVERS:
            print(by_chance.step())
    assert not by_chance.wrong
    for path, expected in by_chance.tables.items():
        table = Table(chaos, hudi, path, expected)
        assert table.is_right() and table.hudi_goes_on()
