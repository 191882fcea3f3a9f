"""One real HDFS for the whole folder, and the storages and tables on it."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest

for suite in ("races", "cases", "reading", "writing", "staging"):
    pytest.register_assert_rewrite(f"sparkrobust.testing.storage_{suite}")

from sparkrobust.storage.hdfs import HdfsStorage  # noqa: E402
from tests.coordinator.writes import table  # noqa: E402
from tests.hdfs_server import HdfsServer, hdfs  # noqa: E402
from tests.skipping import or_skip  # noqa: E402
from tests.spark.conftest import spark  # noqa: E402

__all__ = ["spark", "table"]


@pytest.fixture(scope="session")
def hdfs_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HdfsServer]:
    pytest.importorskip("hdfs_native", reason="hdfs-native is not installed")
    with or_skip(lambda: hdfs(tmp_path_factory.mktemp("hdfs"))) as server:
        yield server


@pytest.fixture
def hdfs_table(hdfs_server: HdfsServer) -> Callable[[], HdfsStorage]:
    """Makes handles on one fresh root."""
    root = f"{hdfs_server.url}/test/{uuid.uuid4().hex[:8]}"
    return lambda: HdfsStorage(root)


@pytest.fixture
def storage(hdfs_table: Callable[[], HdfsStorage]) -> HdfsStorage:
    return hdfs_table()
