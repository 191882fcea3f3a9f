"""What the tests of the formats share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

DATA = Path(__file__).parent.parent / "data"


@pytest.fixture(scope="session")
def reference() -> Any:
    """Loads what another implementation answered, by the name of its file."""
    return lambda name: json.loads((DATA / name).read_text("utf-8"))
