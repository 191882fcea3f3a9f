"""The suite that every store has to pass.

A store's tests inherit :class:`StorageContract` and give it a ``storage`` fixture with an empty
root::

    class TestMyStore(StorageContract):
        @pytest.fixture
        def storage(self, tmp_path):
            return MyStorage(tmp_path)
"""

from __future__ import annotations

from sparkrobust.testing.storage_reading import ReadingCases
from sparkrobust.testing.storage_staging import StagingCases
from sparkrobust.testing.storage_writing import WritingCases


class StorageContract(ReadingCases, WritingCases, StagingCases):
    """Each sentence of :mod:`sparkrobust.storage.contract`, as tests."""
