"""HDFS keeps the contract of every store."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sparkrobust.storage.hdfs import HdfsStorage
from sparkrobust.testing.storage_writing import WritingCases
from tests.storage.test_contract import PickledContract as _PickledContract


class TestHdfs(_PickledContract):
    race_rounds = 8
    forbidden_in_names = ":"

    @pytest.fixture
    def storage(self, hdfs_table: Callable[[], HdfsStorage]) -> HdfsStorage:
        storage = hdfs_table()
        storage.make_folder(".hoodie")
        return storage


class TestHdfsBeforeThereIsATable(WritingCases):
    """Without ``.hoodie`` there is no scratch folder, and files are made beside their place."""

    race_rounds = 4

    @pytest.fixture
    def storage(self, hdfs_table: Callable[[], HdfsStorage]) -> HdfsStorage:
        return hdfs_table()
