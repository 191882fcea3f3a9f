"""The S3 server is the one that the stores are tested with."""

from tests.coordinator.writes import storage, table
from tests.storage.conftest import s3_server, s3_table

__all__ = ["s3_server", "s3_table", "storage", "table"]
