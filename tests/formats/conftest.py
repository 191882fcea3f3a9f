"""What the tests of the formats share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.fixture_tables import hudi_tables

__all__ = ["hudi_tables", "reference"]

# a busy machine is no fault of the code
settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")

DATA = Path(__file__).parent.parent / "data"


@pytest.fixture(scope="session")
def reference() -> Any:
    """Loads what another implementation answered, by the name of its file."""
    return lambda name: json.loads((DATA / name).read_text("utf-8"))
