"""What there is to know of a running S3 server."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class S3Server:
    """A running server."""

    endpoint: str
    access_key: str
    secret_key: str
    folder: Path
    """Where its buckets are folders."""

    def options(self) -> dict[str, str]:
        """How a pipeline would say where it is."""
        return {
            "fs.s3a.endpoint": self.endpoint,
            "fs.s3a.access.key": self.access_key,
            "fs.s3a.secret.key": self.secret_key,
            "fs.s3a.path.style.access": "true",
            "fs.s3a.endpoint.region": "us-east-1",
        }
