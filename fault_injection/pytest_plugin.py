"""A pytest plugin for suites that want to see their Spark jobs fail: ``docs/chaos.md`` has an example.

``pytest_plugins = ["fault_injection.pytest_plugin"]`` in a test module, or in the top ``conftest.py``,
gives it two fixtures: ``chaos_cluster``, a real Spark cluster for the whole run, and ``chaos``, which runs
jobs on it and has faults happen to them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from fault_injection.spark.chaos import Chaos
    from fault_injection.spark.cluster import Cluster

_HAPPENED = pytest.StashKey["Counter[str]"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("chaos")
    group.addoption("--chaos-workers", type=int, default=2, help="how many workers the cluster has")
    group.addoption(
        "--chaos-plain",
        action="store_true",
        help="no namespaces, even where they can be made: hosts can't be cut off then",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_HAPPENED] = Counter()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """How often what has happened."""
    happened = config.stash[_HAPPENED]
    if happened:
        terminalreporter.section("faults that happened")
        for name, count in sorted(happened.items()):
            terminalreporter.line(f"{count:5d}  {name}")


@pytest.fixture(scope="session")
def chaos_cluster(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[Cluster]:
    """A master and workers, each of which is a host of its own where this machine allows it."""
    # The plugin may be loaded where there is no Spark, by a suite that has other tests as well.
    from fault_injection.spark.cluster import ENOUGH_CORES, Cluster  # noqa: PLC0415

    # A plugin that a test module names comes too late for the command line.
    isolated = False if pytestconfig.getoption("chaos_plain", False) else None
    workers = pytestconfig.getoption("chaos_workers", 2)
    folder = tmp_path_factory.mktemp("chaos")
    with Cluster(folder, workers=workers, cores=ENOUGH_CORES, isolated=isolated) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def chaos(chaos_cluster: Cluster, pytestconfig: pytest.Config) -> Iterator[Chaos]:
    """Runs jobs on the cluster; what has happened to each is printed when it has ended."""
    from fault_injection.spark.chaos import Chaos  # noqa: PLC0415
    from fault_injection.spark.report import Report  # noqa: PLC0415

    def told(report: Report) -> None:
        pytestconfig.stash[_HAPPENED].update(report.deeds)
        print(report)

    with Chaos(chaos_cluster, told=told) as runner:
        yield runner
