from __future__ import annotations

from pathlib import Path

import pytest

from sparkrobust.storage.local import LocalStorage


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(str(tmp_path / "table"))
