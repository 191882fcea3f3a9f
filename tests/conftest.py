"""What the tests of every folder share."""

from __future__ import annotations

import faulthandler

from hypothesis import settings

from tests.background import background_ends
from tests.fixture_tables import hudi_tables

__all__ = ["background_ends", "hudi_tables"]

# A busy machine is no fault of the code.
settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")

_SECONDS_TO_END = 120.0


def pytest_unconfigure() -> None:
    """Who hangs after the last test says where, and ends; pytest's own limit is for tests alone."""
    faulthandler.dump_traceback_later(_SECONDS_TO_END, exit=True)
