"""What a lock is called, so that a write can say by which one it goes."""

from __future__ import annotations

import pytest

from sparkrobust.core.lock_name import name_of_lock, options_for


@pytest.mark.parametrize(
    ("lock", "table", "name"),
    [
        ("file:///data/t/.hoodie/lock", "file:///data/t", ".hoodie/lock"),
        ("s3://b/t/.hoodie/.locks/table_lock.json", "s3://b/t", ".hoodie/.locks/table_lock.json"),
        ("s3a://b/t/.hoodie/.locks/table_lock.json", "s3a://b/t", ".hoodie/.locks/table_lock.json"),
        ("s3://b/t/.hoodie/lock", "s3a://b/t", ".hoodie/lock"),
        ("s3://b/locks/lock", "s3a://b/t", "s3a://b/locks/lock"),
        ("s3a://b/locks/lock", "s3://b/t", "s3a://b/locks/lock"),
        ("abfs://c@a.dfs.core.windows.net/locks/lock", "x", "abfss://c@a.dfs.core.windows.net/locks/lock"),
        ("s3a://b/table/lock", "s3a://b/t", "s3a://b/table/lock"),
        ("zookeeper://a:2181,b:2181/locks/t", "hdfs://h:8020/t", "zookeeper://a:2181,b:2181/locks/t"),
    ],
)
def test_all_who_share_a_lock_call_it_the_same(lock: str, table: str, name: str) -> None:
    assert name_of_lock(lock, table) == name


@pytest.mark.parametrize(
    ("name", "options"),
    [
        (".hoodie/lock", "hoodie.write.lock.provider=FileSystemBasedLockProvider"),
        (".hoodie/.locks/table_lock.json", "hoodie.write.lock.provider=StorageBasedLockProvider"),
        (
            "s3a://b/locks/lock",
            "hoodie.write.lock.provider=FileSystemBasedLockProvider, "
            "hoodie.write.lock.filesystem.path=s3a://b/locks",
        ),
        (
            "zookeeper://a:1,b:2/hudi/locks/t",
            "hoodie.write.lock.provider=ZookeeperBasedLockProvider, hoodie.write.lock.zookeeper.url=a:1,b:2, "
            "hoodie.write.lock.zookeeper.base_path=/hudi/locks, hoodie.write.lock.zookeeper.lock_key=t",
        ),
    ],
)
def test_a_locks_name_tells_the_options_of_its_writers(name: str, options: str) -> None:
    assert options_for(name) == options
