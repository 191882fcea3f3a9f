"""A real HDFS for tests: a NameNode and two DataNodes on loopback, stopped by pid.

PySpark's jars hold Hadoop's client; what the servers need beside it is one jar, which Maven fetches
once per machine.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fault_injection.pyspark_jars import JAVA_OPTIONS, java, pyspark_jars
from fault_injection.servers import Unavailable, cache_folder, free_port, stop
from sparkrobust.errors import StorageFullError, UnavailableError
from sparkrobust.storage.hdfs import HdfsStorage
from sparkrobust.storage.patience import Patience

_ARTIFACT = "org.apache.hadoop:hadoop-client-minicluster"
_NAMENODE = "org.apache.hadoop.hdfs.server.namenode.NameNode"
_DATANODE = "org.apache.hadoop.hdfs.server.datanode.DataNode"
_ADMIN = "org.apache.hadoop.hdfs.tools.DFSAdmin"
_DATANODES = ("datanode1", "datanode2")
_FETCH_SECONDS = 900
_START_SECONDS = 120
_ADMIN_SECONDS = 120
BLOCK = 4 << 20
"""Small, so that files of some megabytes have several."""

_SETTINGS = {
    "dfs.namenode.http-address": "127.0.0.1:0",
    "dfs.namenode.rpc-bind-host": "127.0.0.1",
    "dfs.namenode.safemode.extension": "0",
    "dfs.namenode.edits.noeditlogchannelflush": "true",
    # A client that asks to close its file before a DataNode has reported the block waits for half a
    # second.  With one DataNode on the same machine that is the rule; with two this spares it.
    "dfs.namenode.file.close.num-committed-allowed": "1",
    "dfs.replication": "2",
    "dfs.datanode.address": "127.0.0.1:0",
    "dfs.datanode.http.address": "127.0.0.1:0",
    "dfs.datanode.ipc.address": "127.0.0.1:0",
    "dfs.datanode.hostname": "127.0.0.1",
    "dfs.heartbeat.interval": "1",
    "dfs.blocksize": str(BLOCK),
    "dfs.permissions.enabled": "true",
}


@dataclass(frozen=True, kw_only=True)
class HdfsServer:
    """A running HDFS."""

    authority: str
    folder: Path
    """With its configuration, in ``conf``, and its logs."""
    command: tuple[str, ...]
    namenode: subprocess.Popen[bytes]

    @property
    def url(self) -> str:
        return f"hdfs://{self.authority}"

    @property
    def conf(self) -> Path:
        return self.folder / "conf"

    def admin(self, *arguments: str) -> None:
        """Do what only an administrator may, as ``hdfs dfsadmin`` does it."""
        done = subprocess.run(
            [*self.command, _ADMIN, *arguments], capture_output=True, text=True, timeout=_ADMIN_SECONDS
        )
        assert done.returncode == 0, done.stderr[-2000:]


def _server_jar(jars: Path) -> Path:
    """What a server needs beside PySpark's jars, in their version of Hadoop."""
    versions = [jar.stem.removeprefix("hadoop-client-api-") for jar in jars.glob("hadoop-client-api-*.jar")]
    if not versions:
        raise Unavailable(f"no HDFS for the tests: there is no Hadoop client in {jars}")
    cache = cache_folder()
    jar = cache / f"hadoop-client-minicluster-{versions[0]}.jar"
    with open(cache / "hadoop.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not jar.exists():
            _fetch(f"{_ARTIFACT}:{versions[0]}", jar)
    return jar


def _fetch(artifact: str, jar: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise Unavailable(f"no HDFS for the tests: `mvn`, which fetches {artifact}, is not installed")
    print(f"fetching {artifact} (once per machine) into {jar.parent}", flush=True)
    scratch = jar.parent / f"{jar.stem}.fetched"
    command = [
        maven, "-B", "-q", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={scratch}"
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=_FETCH_SECONDS)
    if done.returncode:
        raise Unavailable(f"no HDFS for the tests: Maven failed:\n{(done.stdout + done.stderr)[-2000:]}")
    os.replace(scratch / jar.name, jar)
    shutil.rmtree(scratch)


@contextlib.contextmanager
def hdfs(folder: Path) -> Iterator[HdfsServer]:
    """An HDFS that keeps its blocks in a folder."""
    jars = pyspark_jars()
    conf = folder / "conf"
    path = os.pathsep.join([str(conf), str(_server_jar(jars)), f"{jars}/*"])
    command = (java(), *JAVA_OPTIONS, f"-Dhadoop.log.dir={folder}", "-cp", path)
    for _ in range(5):  # somebody else may take the port before the NameNode does
        authority = f"127.0.0.1:{free_port()}"
        _configure(folder, authority)
        with contextlib.ExitStack() as running:
            # DataNodes wait for the NameNode, and take as long as it does to begin.
            datanodes = []
            for name in _DATANODES:
                place = f"dfs.datanode.data.dir={folder / name}"
                datanodes.append(
                    running.enter_context(_running(folder, name, command, _DATANODE, "-D", place))
                )
            _format(folder, command)
            namenode = running.enter_context(_running(folder, "namenode", command, _NAMENODE))
            server = HdfsServer(authority=authority, folder=folder, command=command, namenode=namenode)
            if _takes_files(server, namenode, *datanodes):
                yield server
                return
    raise RuntimeError("HDFS does not start:\n" + (folder / "namenode.log").read_text()[-2000:])


def _configure(folder: Path, authority: str) -> None:
    for name in ("name", *_DATANODES):
        shutil.rmtree(folder / name, ignore_errors=True)
    (folder / "conf").mkdir(exist_ok=True)
    settings = {**_SETTINGS, "dfs.namenode.name.dir": str(folder / "name")}
    for file, values in (("core-site", {"fs.defaultFS": f"hdfs://{authority}"}), ("hdfs-site", settings)):
        lines = (f"<property><name>{key}</name><value>{v}</value></property>\n" for key, v in values.items())
        text = f"<configuration>\n{''.join(lines)}</configuration>\n"
        (folder / "conf" / f"{file}.xml").write_text(text)


def _format(folder: Path, command: tuple[str, ...]) -> None:
    log = folder / "formatted.log"
    with open(log, "wb") as file:
        arguments = [*command, _NAMENODE, "-format", "-force", "-nonInteractive"]
        done = subprocess.run(arguments, stdout=file, stderr=file, timeout=_START_SECONDS)
    if done.returncode:
        raise RuntimeError("a NameNode can't be formatted:\n" + log.read_text()[-2000:])


@contextlib.contextmanager
def _running(
    folder: Path, name: str, command: tuple[str, ...], *arguments: str
) -> Iterator[subprocess.Popen[bytes]]:
    with open(folder / f"{name}.log", "wb") as log:
        process = subprocess.Popen([*command, *arguments], stdout=log, stderr=log, cwd=folder)
    try:
        yield process
    finally:
        stop(process)


def _takes_files(server: HdfsServer, *processes: subprocess.Popen[bytes]) -> bool:
    """Whether the processes live to take a file."""
    once = Patience(tries=1, first_pause=0.1, longest_pause=0.1)
    storage = HdfsStorage(f"{server.url}/start", patience=once)
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and all(process.poll() is None for process in processes):
        with contextlib.suppress(UnavailableError, StorageFullError):
            storage.make_folder("")
            storage.put("started", b"1")
            if all(any((server.folder / name).rglob("blk_*")) for name in _DATANODES):
                return True
        time.sleep(0.1)
    return False
