"""What the tests of every folder share."""

from __future__ import annotations

from hypothesis import settings

from tests.fixture_tables import hudi_tables

__all__ = ["hudi_tables"]

# A busy machine is no fault of the code.
settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")
