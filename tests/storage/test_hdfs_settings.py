"""How HDFS is found, and what its answers mean; without any server."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkrobust.errors import (
    InvalidInputError,
    PermissionDeniedError,
    RobustWriteError,
    StorageFullError,
    UnsafePathError,
)
from sparkrobust.storage.contract import AlreadyExistsError, NotFoundError
from sparkrobust.storage.hdfs_requests import Refused, Unclear, _answer_of
from sparkrobust.storage.hdfs_settings import HdfsSettings
from sparkrobust.storage.resolve import storage_for


@pytest.fixture(autouse=True)
def no_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HADOOP_CONF_DIR", "HADOOP_HOME"):
        monkeypatch.delenv(name, raising=False)


def configure(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, pairs in files.items():
        lines = [
            f"<property><name>{key}</name><value> {value} </value></property>"
            for key, value in (pair.split("=") for pair in pairs.split())
        ]
        text = f"<?xml version='1.0'?><configuration>{''.join(lines)}</configuration>"
        (folder / f"{name}-site.xml").write_text(text)


@pytest.mark.parametrize("by_home", [False, True])
def test_hadoops_files_tell_the_file_system_and_options_come_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_home: bool
) -> None:
    folder = tmp_path / "etc" / "hadoop"
    configure(
        folder,
        core="fs.defaultFS=hdfs://cluster fs.s3a.secret.key=hush fs.permissions.umask-mode=027",
        hdfs="dfs.ha.namenodes.cluster=a,b dfs.namenode.rpc-address.cluster.a=one:9",
    )
    monkeypatch.setenv(*(("HADOOP_HOME", str(tmp_path)) if by_home else ("HADOOP_CONF_DIR", str(folder))))
    found = HdfsSettings.of({"dfs.namenode.rpc-address.cluster.a": "two:9", "fs.s3a.access.key": "hush"}, "")
    assert found.authority == "cluster"
    assert found.umask == 0o027
    assert dict(found.config) == {
        "fs.defaultFS": "hdfs://cluster",
        "fs.permissions.umask-mode": "027",
        "dfs.ha.namenodes.cluster": "a,b",
        "dfs.namenode.rpc-address.cluster.a": "two:9",
    }


def test_a_namenode_without_a_port_has_hadoops(tmp_path: Path) -> None:
    assert HdfsSettings.of({}, "namenode").authority == "namenode:8020"
    assert HdfsSettings.of({}, "namenode:9000").authority == "namenode:9000"
    assert HdfsSettings.of({"fs.defaultFS": "hdfs://other:9/x"}, "").authority == "other:9"
    assert HdfsSettings.of({}, "namenode").umask == 0o022


@pytest.mark.parametrize("default", [None, "file:///", "s3a://bucket", "viewfs://cluster"])
def test_without_a_default_file_system_on_hdfs_the_host_has_to_be_said(default: str | None) -> None:
    with pytest.raises(InvalidInputError, match="HADOOP_CONF_DIR"):
        storage_for("hdfs:///t", {"fs.defaultFS": default} if default else {})


def test_a_configuration_that_can_not_be_read_is_bad_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "core-site.xml").write_text("<configuration>")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    with pytest.raises(InvalidInputError, match=r"core-site\.xml"):
        storage_for("hdfs://namenode/t")


def remote(name: str, reason: str) -> RuntimeError:
    return RuntimeError(f'RPCError("{name}", "{reason}\\n\\tat somewhere(File.java:1)")')


_HDFS = "org.apache.hadoop.hdfs"
_FULL = "File /t could only be written to 0 of the 1 minReplication nodes. There are "


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (FileNotFoundError("/t"), NotFoundError),
        (FileExistsError("/t"), AlreadyExistsError),
        (
            remote("org.apache.hadoop.fs.ParentNotDirectoryException", "/t (is not a directory)"),
            NotFoundError,
        ),
        (
            remote("org.apache.hadoop.security.AccessControlException", "/t (is not a directory)"),
            NotFoundError,
        ),
        (
            remote("org.apache.hadoop.security.AccessControlException", "Permission denied: user=x"),
            PermissionDeniedError,
        ),
        (
            remote("java.io.IOException", "Source /a and destination /b must both be directories"),
            AlreadyExistsError,
        ),
        (remote(f"{_HDFS}.protocol.DSQuotaExceededException", "The DiskSpace quota"), StorageFullError),
        (remote(f"{_HDFS}.protocol.NSQuotaExceededException", "The NameSpace quota"), StorageFullError),
        (
            remote(
                "java.io.IOException", _FULL + "3 datanode(s) running and no node(s) are excluded in this"
            ),
            StorageFullError,
        ),
        (
            remote(
                "java.io.IOException", _FULL + "0 datanode(s) running and no node(s) are excluded in this"
            ),
            None,
        ),
        (
            remote("java.io.IOException", _FULL + "2 datanode(s) running and 1 node(s) are excluded in this"),
            None,
        ),
        (remote("org.apache.hadoop.fs.InvalidPathException", "Invalid path name /a:b"), UnsafePathError),
        (remote(f"{_HDFS}.server.namenode.SafeModeException", "Cannot create file"), None),
        (RuntimeError('FatalRPCError("org.apache.hadoop.ipc.StandbyException", "no")'), None),
        (RuntimeError('GSSAPIError("no ticket")'), PermissionDeniedError),
        (RuntimeError('InvalidArgument("No NameNode hosts found")'), InvalidInputError),
        (RuntimeError('DataTransferError("gone")'), None),
        (OSError("Connection refused (os error 111)"), None),
    ],
)
def test_an_answer_is_a_refusal_of_its_kind_or_unclear(
    error: Exception, kind: type[RobustWriteError] | None
) -> None:
    answer = _answer_of(error)
    assert "somewhere" not in str(answer) and "\n" not in str(answer)
    if kind is None:
        assert isinstance(answer, Unclear)
    else:
        assert isinstance(answer, Refused) and answer.kind is kind
