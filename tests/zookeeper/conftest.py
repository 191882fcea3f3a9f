"""One real ZooKeeper for the whole folder."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest

pytest.register_assert_rewrite("sparkrobust.testing.locks")

from fault_injection.zookeeper_server import ZooKeeper, zookeeper  # noqa: E402
from sparkrobust.storage.zookeeper_lock import ZooKeeperLock  # noqa: E402
from tests.skipping import or_skip  # noqa: E402
from tests.spark.conftest import spark  # noqa: E402

__all__ = ["spark"]


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    with or_skip(lambda: zookeeper(tmp_path_factory.mktemp("zookeeper"))) as server:
        yield server


@pytest.fixture
def make(server: ZooKeeper) -> Callable[[], ZooKeeperLock]:
    """Makes handles on one lock that nobody has."""
    path = f"/locks/{uuid.uuid4().hex[:8]}"
    return lambda: ZooKeeperLock(server.hosts, path, session_seconds=2, connect_seconds=10)
