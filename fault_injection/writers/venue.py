"""Where a race takes place: a store and a lock, with the servers that they need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from fault_injection.servers import s3
from fault_injection.zookeeper_server import zookeeper
from sparkrobust.storage.s3_settings import S3Settings, client_of

LOCKS = {
    "storage": {
        "hoodie.write.lock.provider": "StorageBasedLockProvider",
        "hoodie.write.lock.storage.validity.timeout.secs": "10",
        "hoodie.write.lock.storage.renew.interval.secs": "1",
    },
    "file": {
        "hoodie.write.lock.provider": "FileSystemBasedLockProvider",
        "hoodie.write.lock.filesystem.expire": "1",
    },
    "zookeeper": {
        "hoodie.write.lock.provider": "ZookeeperBasedLockProvider",
        "hoodie.write.lock.zookeeper.base_path": "/hudi",
        "hoodie.write.lock.zookeeper.lock_key": "raced",
        "hoodie.write.lock.zookeeper.session_timeout_ms": "5000",
    },
}
"""Each is soon free where its holder is killed."""
STORES = ("disk", "s3")
_BUCKET = "races"


@dataclass(frozen=True, kw_only=True)
class Venue:
    """A table's path, and the options by which its writers reach it and each other."""

    url: str
    lock: Mapping[str, str]
    store: Mapping[str, str] = field(default_factory=dict)

    @property
    def options(self) -> dict[str, str]:
        return {**self.store, **self.lock}

    def uploads(self) -> list[str]:
        """The multipart uploads of the store that were begun and neither completed nor aborted."""
        if not self.store:
            return []
        answer = client_of(S3Settings.of(self.store, _BUCKET)).list_multipart_uploads(Bucket=_BUCKET)
        return [upload["Key"] for upload in answer.get("Uploads", ())]

    def copy(self, folder: Path) -> Path:
        """The table as files that a plain reader can read: in the folder, where the store has none."""
        if not self.store:
            return Path(self.url)
        client = client_of(S3Settings.of(self.store, _BUCKET))
        prefix = self.url.removeprefix(f"s3a://{_BUCKET}/") + "/"
        for page in client.get_paginator("list_objects_v2").paginate(Bucket=_BUCKET, Prefix=prefix):
            for found in page.get("Contents", ()):
                file = folder / found["Key"].removeprefix(prefix)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(client.get_object(Bucket=_BUCKET, Key=found["Key"])["Body"].read())
        return folder


@contextmanager
def venue(store: str, lock: str, folder: Path) -> Iterator[Venue]:
    """One whose servers run as long as the block, and keep what they have in the folder.

    Raises
    ------
    Unavailable
        A server can't be had on this machine.
    """
    chosen = dict(LOCKS[lock])
    with ExitStack() as running:
        if lock == "zookeeper":
            place = folder / "zookeeper"
            place.mkdir(parents=True)
            hosts = running.enter_context(zookeeper(place)).hosts
            # Hudi takes no notice of the port by itself, and asks for it all the same.
            chosen |= {
                "hoodie.write.lock.zookeeper.url": hosts,
                "hoodie.write.lock.zookeeper.port": hosts.partition(":")[2],
            }
        if store == "disk":
            yield Venue(url=str(folder / "t"), lock=chosen)
            return
        server = running.enter_context(s3(folder / "s3"))
        client_of(S3Settings.of(server.options(), _BUCKET)).create_bucket(Bucket=_BUCKET)
        yield Venue(url=f"s3a://{_BUCKET}/t", lock=chosen, store=server.options())
