"""What a lock is called by all who share it, so that a write can say by which one it goes."""

from __future__ import annotations

from sparkrobust.core.names import LOCK_FILE, LOCK_RECORD

_SAME_STORE = {"s3": "s3a", "abfs": "abfss", "wasb": "wasbs"}
_PROVIDER = "hoodie.write.lock.provider"
_IN_ZOOKEEPER = "zookeeper://"


def name_of_lock(lock: str, table: str) -> str:
    """The lock's name, which is the same whichever way its users spell the urls of its store.

    Parameters
    ----------
    lock
        How one of them spells it.
    table
        How the same one spells the table: a lock in it is told by its place there.
    """
    lock, inside = _with_one_scheme(lock), f"{_with_one_scheme(table)}/"
    return lock.removeprefix(inside)


def _with_one_scheme(url: str) -> str:
    scheme, sign, rest = url.partition("://")
    return f"{_SAME_STORE.get(scheme, scheme)}{sign}{rest}"


def options_for(name: str) -> str:
    """The options of a write that goes by the lock of this name, as far as they follow from it."""
    if name == LOCK_RECORD:
        return f"{_PROVIDER}=StorageBasedLockProvider"
    if name.startswith(_IN_ZOOKEEPER):
        hosts, _, path = name.removeprefix(_IN_ZOOKEEPER).partition("/")
        base, _, key = path.rpartition("/")
        return (
            f"{_PROVIDER}=ZookeeperBasedLockProvider, hoodie.write.lock.zookeeper.url={hosts}, "
            f"hoodie.write.lock.zookeeper.base_path=/{base}, hoodie.write.lock.zookeeper.lock_key={key}"
        )
    by_file = f"{_PROVIDER}=FileSystemBasedLockProvider"
    if name == LOCK_FILE:
        return by_file
    return f"{by_file}, hoodie.write.lock.filesystem.path={name.rpartition('/')[0]}"
