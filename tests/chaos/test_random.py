"""Random writes with random faults, of which the real Hudi says what has come of them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from fault_injection.spark.chaos import Chaos
from fault_injection.spark.random_chaos import RandomChaos
from fault_injection.spark.store import Store
from tests.chaos.conftest import NEWEST, Table
from tests.interop.oracle import Oracle

pytest_plugins = ["fault_injection.pytest_plugin"]

FAULTS = int(os.environ.get("SPARKROBUST_RANDOM_FAULTS", "15"))
DRIVERS = 3
"""On each of two Sparks."""
SEED = int(os.environ.get("SPARKROBUST_RANDOM_SEED", "13" if NEWEST else "102"))
"""These have nearly every fault, and few drivers die, which takes longest."""


def test_hudi_reads_what_random_faults_have_left_as_it_must_be_and_goes_on(
    chaos: Chaos, hudi: Oracle, store_or_reason: Store | str, tmp_path: Path
) -> None:
    store = store_or_reason if isinstance(store_or_reason, Store) else None
    with Chaos(chaos.cluster, told=chaos.told, store=store) as drivers:
        by_chance = RandomChaos(drivers, tmp_path, SEED, writes_of_a_table=4)
        while by_chance.happened.total() < FAULTS or by_chance.drivers < DRIVERS:
            print(by_chance.step())
    assert not by_chance.wrong
    for number, one in enumerate(by_chance.tables):
        # A table does not know where it lies: in a bucket it is files, and one on a disk that the cluster
        # alone has goes on elsewhere.
        path = one.folder
        if one.perils.filled:
            path = shutil.copytree(one.folder, tmp_path / f"copy-{number}")
        table = Table(chaos, hudi, path, one.expected)
        assert table.is_right() and table.hudi_goes_on()
