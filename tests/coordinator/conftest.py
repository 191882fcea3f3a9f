"""The servers are those that the stores are tested with."""

from __future__ import annotations

from tests.coordinator.writes import group, in_memory, storage, table
from tests.storage.conftest import azure_server, azure_table, s3_server, s3_table

__all__ = ["azure_server", "azure_table", "group", "in_memory", "s3_server", "s3_table", "storage", "table"]
