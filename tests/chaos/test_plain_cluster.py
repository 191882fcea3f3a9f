"""A cluster without namespaces, as who is not root has it: the faults that it knows do no harm either."""

from __future__ import annotations

from pathlib import Path

from fault_injection.spark.chaos import Chaos
from fault_injection.spark.cluster import ENOUGH_CORES, Cluster
from fault_injection.spark.faults import Fault, KillExecutor, at
from tests.chaos.conftest import Table, turn
from tests.interop.oracle import Oracle

pytest_plugins = ["fault_injection.pytest_plugin"]


@turn(newest=True)
def test_an_executor_that_is_killed_while_it_writes_is_replaced_on_a_plain_cluster_too(
    hudi: Oracle, tmp_path: Path
) -> None:
    cluster = Cluster(tmp_path / "cluster", cores=ENOUGH_CORES, isolated=False)
    with cluster, Chaos(cluster, told=print) as chaos:
        table = Table(chaos, hudi, tmp_path / "t").begin()
        report = table.write(
            "upsert", 300, 900, Fault("killed", at("file begun", "task", nth=2), KillExecutor())
        )
        assert report.reaction.executors_lost, report
        assert table.is_right() and table.hudi_goes_on()
